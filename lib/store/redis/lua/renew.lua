if open then
  local until_ms = now + (ms ~= 0 and ms or lease_ms)
  to = state
  if until_ms > lease_until then lease_until = until_ms end
end
