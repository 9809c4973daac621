# The headers of all answers without repeats: a repeat has a `source` that is not above the highest one of its response
# partition and source partition.
kcat -C -b localhost:9092 -t answers -e -q -f '%p %h\n' | awk '
  match($0, /source=[^,]*/) { split(substr($0, RSTART + 7, RLENGTH - 7), at, "/") }
  at[3] >= due[$1, at[1], at[2]] { due[$1, at[1], at[2]] = at[3] + 1; print }'
