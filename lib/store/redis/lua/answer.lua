-- Answers are {outcome, now, bytes}; outcome -1: this is not a record. Bytes are the whole record where it has a payload that the
-- caller does not know yet, else its first 128. That something was applied just now is told shorter: the first 128 bytes alone, in
-- which the time of the change is now; or the time alone, of a first claim.
if not r then return {outcome, now, ''} end
if schema > newest then return {outcome, now, sub(r, 1, 64)} end
-- A write, so that there is something to wait for: an earlier answer may have been lost before its replicas had it.
if waits and (outcome == 1 or outcome == 2 or outcome == 6 or outcome == 7) then
  if expires ~= 0 then
    redis.call('PEXPIREAT', key, expires)
  else
    redis.call('SETRANGE', key, 0, sub(r, 1, 1))
  end
end
if outcome == 6 or byte(r, 70) == 0 then return {outcome, now, sub(r, 1, 128)} end
return {outcome, now, r}
