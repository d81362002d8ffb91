-- ARGV: 2 claim id, 3 epoch, 4 force. The envelope is enough: also what a newer version wrote can be removed.
if r and claim == ARGV[2] and epoch == tonumber(ARGV[3]) and (state == 2 or state == 3 or ARGV[4] == '1') then
  redis.call('DEL', key)
  return {6, now, ''}
end
return answer(9)
