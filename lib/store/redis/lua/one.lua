-- One operation: KEYS[1] is the record. There is no function: making one for each call costs Redis more than what it would do.
local key, said, more = KEYS[1], ARGV[1], ARGV[2]
