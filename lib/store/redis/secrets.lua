-- Loads the secrets of the installation, or replaces them.
--
--   redis-cli --eval secrets.lua SECRETS MARK , OLD NEW NEW_MARK
--
-- SECRETS is the key of their text, MARK that of the mark of its record secret. OLD is the text to replace, empty if there must
-- be none yet. The answer is the text that is there now; it is empty if the text is gone but a mark other than NEW_MARK is left.
-- Reading writes nothing: a server that is full still has secrets for a gateway that has just started.
local text, mark = redis.call('GET', KEYS[1]), redis.call('GET', KEYS[2])
local none = ARGV[1] == ''
if (text and not none and text == ARGV[1]) or (not text and none and (not mark or mark == ARGV[3])) then
  redis.call('SET', KEYS[1], ARGV[2])
  text = ARGV[2]
end
-- The first two lines are the version and the record secret.
local same = text and string.match(text, '^[^\n]*\n[^\n]*\n') == string.match(ARGV[2], '^[^\n]*\n[^\n]*\n')
if same and mark ~= ARGV[3] then redis.call('SET', KEYS[2], ARGV[3]) end
return text or ''
