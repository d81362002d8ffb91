if open and (state == 1 or flags % 2 == 1) then
  to = 4
  flags = flags - flags % 2
  lease_until = now + (ms ~= 0 and ms or lease_ms)
elseif open then
  outcome = 6
end
