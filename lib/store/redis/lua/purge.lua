-- `said`: as in write.lua. The envelope is enough: also what a newer version wrote can be removed.
local options, _, _, _, his_epoch, his_claim = unpack('<BBBI2I4c16', said)
local waits = false
if r and claim == his_claim and epoch == his_epoch and (state == 2 or state == 3 or options >= 2) then
  redis.call('DEL', key)
  return {6, now, ''}
end
outcome = 9
