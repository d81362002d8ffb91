// What receivers in JavaScript verify webhooks with: one request a line, one line of what it says.
import { Webhook } from "standardwebhooks";
import { readFileSync } from "node:fs";

for (const line of readFileSync(0, "utf8").split("\n").filter(Boolean)) {
  const { secret, headers, body } = JSON.parse(line);
  try {
    console.log(JSON.stringify({ verified: new Webhook(secret).verify(body, headers) }));
  } catch (error) {
    console.log(JSON.stringify({ refused: error.message }));
  }
}
