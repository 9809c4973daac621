"""What a person types besides `run` and `check`: one folder each. Nothing that `run` reaches imports from here."""
