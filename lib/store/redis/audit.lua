#!lua flags=allow-oom
-- Reads the audit trail, or adds to it.
--
--   redis-cli --eval audit.lua AUDIT , PLACE [LINE]
--
-- AUDIT is a list of lines. With LINE: it becomes the one behind the first PLACE ones, if these are all; the answer is how many
-- there are now, or -1. Without: the lines behind the first PLACE ones, at most 128, and before them how many come before the line
-- that follows; PLACE `last`: the last one.
--
-- The first line lets a person decide when Redis is out of memory: what makes room is a decision, too. Reading is sent without it,
-- because it must also run where nothing may be written.
local count = redis.call('LLEN', KEYS[1])
if ARGV[2] then
  if count ~= tonumber(ARGV[1]) then return -1 end
  return redis.call('RPUSH', KEYS[1], ARGV[2])
end
local from = ARGV[1] == 'last' and math.max(count - 1, 0) or tonumber(ARGV[1])
local lines = redis.call('LRANGE', KEYS[1], from, from + 127)
table.insert(lines, 1, tostring(from + #lines))
return lines
