"""Sources of change data: rows that a PostgreSQL database commits become messages, each stored exactly once.

`database` reads: first a snapshot of the rows that are there, then the changes of each transaction in the order of
commits, as `pgoutput` has them. `row_mapping` makes messages of them. `sender` sends them under numbers that follow
from the position of a change alone (`positions`), so that a broker that deduplicates drops what it has, whichever
process sends it again, and nothing else. `runner` reports a position to the database only after the receipts of all
messages before it (`progress`), and after a mark that names the position is stored: after a kill, every change after
that position comes again, and a slot that is further on than the last mark was moved by somebody else.

The broker forgets the numbers of a producer that has been away for six hours
(`brokerDeduplicationProducerInactivityTimeoutMinutes`). Where it does not know a name, the partition itself is read for
messages that an earlier process sent (`stored_messages`). Only messages under the names of the source's own producers
count there (`identity`), because anybody who may produce can write every property.

`verifier` reads the log a second time, by a slot of its own, and `commit_proof` compares it with the stored messages.

Two limits. A snapshot that is interrupted begins anew, with rows that may have changed since: rows that were sent come
again. And if routes or partitions change between a kill and the next start, the messages since the last confirmed
position, of two seconds as a rule, may come twice, on two partitions, with the same `kodo-id`.
"""
