-- Every script that decides begins with this: the time, and the names of what is called often. KEYS[1] is the record; the second
-- byte of ARGV[1] is the newest schema that the caller can read. There are no functions: making one for each call costs Redis more
-- than what it would do.
local key = KEYS[1]
local sub, byte, pack, unpack = string.sub, string.byte, struct.pack, struct.unpack
local newest = byte(ARGV[1], 2)
local envelope = '<BBBBBxxxI4I4c16I8I8I8I8'
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
