-- Stores a record in another form, if it is still what the caller has read. Its end stays.
--
--   redis-cli --eval replace.lua RECORD , READ NEW
--
-- Answers 1, or 0: it has changed, or is gone.
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[2], 'KEEPTTL')
return 1
