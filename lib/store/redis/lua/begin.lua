-- Every script that decides begins with this: the time, and the names of what is called often. The second byte of ARGV[1] is the
-- newest schema that the caller can read.
local sub, byte, pack, unpack = string.sub, string.byte, struct.pack, struct.unpack
local newest = byte(ARGV[1], 2)
local envelope = '<BBBBBxxxI4I4c16I8I8I8I8'
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
