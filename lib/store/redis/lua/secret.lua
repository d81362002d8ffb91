-- A claim is decided only where the store has the caller's secrets. With others, the same key has another id: it would run under both.
-- The last of KEYS is where the mark of the store's is, the last of ARGV is the caller's.
local marked, mark = table.remove(KEYS), table.remove(ARGV)
if redis.call('GET', marked) ~= mark then return {err = 'SECRET the store has others, or none'} end
