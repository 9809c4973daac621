"""Kafka, processes that die, and real workers in one world of simulated time. Reading order:

    process.py    a process: it asks over a wire, and may die before any step
    log.py        one output partition: transactions, the last stable offset, a `read_committed` reader
    group.py      one consumer group: members and their epochs, committed and pending offsets
    broker.py     request logs, output logs, transactional ids: all that outlives a process
    source.py, producers.py   the clients, behind the protocols of the loop and of delivery
    memories.py   the places of states, and the clients that read and write them
    replica.py    a real `Worker` among these clients
    checker.py    the promises at every instant, and at the end
    lives.py      one life after another, with a crash at any step
    schedules.py  random events, by dice
    mutants.py    promises broken on purpose

Nothing here sleeps, threads or guesses: the same seed gives the same history.
"""
