// What a person does with the page, in a real browser. browser.mjs ADDRESS VIEWER OTHER DIRECTORY ONCE STORE MESSAGES: the address of
// an operator and of a viewer, each with its token; the address of another site; where pictures go; the program, and the operator's
// store; the address of an operator of a consumer. Node's modules are in the current directory.
import assert from 'node:assert/strict';
import fs from 'node:fs';
import path from 'node:path';
import { execFileSync } from 'node:child_process';
import { load, launch } from './chromium.mjs';

const axe = fs.readFileSync(load.resolve('axe-core/axe.min.js'), 'utf8');
const [address, viewer, other, directory, once, store, messages] = process.argv.slice(2);
const base = address.split('#')[0];
const HOSTILE = '<img src=x onerror=alert(1)>';
const complaints = [];

const { context, page } = await launch(directory, {
    viewport: { width: 1280, height: 900 },
    timezoneId: 'Asia/Tokyo',
});

function watch(tab) {
    tab.on('pageerror', (error) => complaints.push(`error: ${error.message}`));
    tab.on('dialog', (dialog) => {
        complaints.push(`a script ran: ${dialog.message()}`);
        dialog.dismiss();
    });
    // That the browser reports an answer of 401 or 409 is expected of some steps.
    tab.on('console', (message) => {
        if (message.type() === 'error' && !/status of (401|409)/.test(message.text())) complaints.push(message.text());
    });
}

async function picture(name) {
    await page.screenshot({ path: path.join(directory, `${name}.png`) });
}

async function accessible(where) {
    await page.evaluate(axe);
    const found = await page.evaluate(() =>
        globalThis.axe.run(document, { runOnly: ['wcag2a', 'wcag2aa', 'wcag21aa', 'best-practice'] }),
    );
    const serious = found.violations.filter((violation) => ['serious', 'critical'].includes(violation.impact));
    assert.deepEqual(
        serious.map((violation) => `${where}: ${violation.id}: ${violation.nodes[0].html}`),
        [],
    );
}

const card = (key) => page.locator('article.card', { has: page.getByText(key, { exact: true }) });
// The page's policy forbids what waitForFunction does.
const cards = (count) =>
    page
        .locator('article.card')
        .nth(count - 1)
        .waitFor()
        .then(() => page.locator('article.card').nth(count).waitFor({ state: 'detached' }));
const steps = [];
const step = (name, run) => steps.push([name, run]);

step('open: the token becomes a session, and leaves the address', async () => {
    await page.goto(address);
    await page.getByRole('heading', { name: 'What needs a decision' }).waitFor();
    assert.equal(new URL(page.url()).hash, '');
    await page.locator('#stuck-count').getByText('4').waitFor();
    assert.equal(await page.locator('article.card').count(), 4);
    assert.equal(await page.evaluate(() => document.cookie), '');
    await picture('decide');
    await accessible('decide');
});

step('hostile bytes are text', async () => {
    await card(HOSTILE).getByRole('link', { name: 'POST /<script>alert(2)</script>' }).click();
    await page.getByRole('heading', { name: 'POST /<script>alert(2)</script>' }).waitFor();
    assert.equal(await page.locator('main img, main script').count(), 0);
});

step('filter', async () => {
    await page.getByRole('link', { name: 'Operations', exact: true }).click();
    await page.getByRole('button', { name: 'Go on' }).waitFor();
    await page.getByLabel('State').selectOption('failed');
    await page.getByRole('button', { name: 'Filter' }).click();
    await page.getByText('Looked at every record.').waitFor();
    assert.equal(await page.locator('tbody tr').count(), 1);
    await page.getByLabel('State').selectOption('');
    await page.getByLabel('Key contains').fill('order-1');
    await page.getByLabel('Key contains').press('Enter');
    await page.getByText('Looked at every record.').waitFor();
    assert.deepEqual(await page.locator('tbody code').allTextContents(), ['order-1']);
    await picture('operations');
    await accessible('operations');
});

step('follow one operation: what the client got is shown on demand, and in the zone of the viewer', async () => {
    await page.locator('tbody a').click();
    await page.getByRole('heading', { name: 'POST /payments' }).waitFor();
    assert.equal(await page.getByText('alert(3)').count(), 0);
    const shown = await page.locator('ol.life time').first();
    const local = new Intl.DateTimeFormat('en-GB', { dateStyle: 'medium', timeStyle: 'medium', timeZone: 'Asia/Tokyo' });
    assert.equal(await shown.textContent(), local.format(new Date(await shown.getAttribute('datetime'))));
    await page.getByRole('button', { name: 'Show what the client got' }).click();
    assert.equal(await page.locator('pre').textContent(), '<script>alert(3)</script>\u{fffd}');
    await picture('operation');
    await accessible('operation');
});

step('an id leads to its operation', async () => {
    const id = page.url().split('/').pop();
    await page.getByRole('link', { name: 'Operations', exact: true }).click();
    await page.getByLabel('Key contains, or id').fill(id);
    await page.getByLabel('Key contains, or id').press('Enter');
    await page.getByRole('heading', { name: 'Its life' }).waitFor();
    assert.ok(page.url().endsWith(`#/operation/${id}`));
});

step('settle an unknown one, by keyboard', async () => {
    await page.getByRole('link', { name: 'Decide' }).click();
    await card('order-2').getByRole('button', { name: 'It took effect…' }).press('Enter');
    await page.getByRole('dialog').waitFor();
    await accessible('dialog');
    await page.getByLabel('Status').fill('201');
    await page.getByLabel('Body').fill('{"id": "pay_2"}');
    await page.getByRole('button', { name: 'Settle as completed' }).press('Enter');
    assert.ok(await page.getByRole('dialog').isVisible()); // without a note
    await page.getByLabel('Why?').fill('the ledger has it');
    await picture('dialog');
    await page.getByLabel('Why?').press('Tab');
    await page.getByRole('button', { name: 'Settle as completed' }).press('Enter');
    await page.getByText('Settled: it is completed now.').waitFor();
    await cards(3);
    await page.getByRole('link', { name: 'Audit' }).click();
    await page.getByRole('cell', { name: 'the ledger has it' }).first().waitFor();
    await accessible('audit');
});

step('be refused when it moved on', async () => {
    await page.getByRole('link', { name: 'Decide' }).click();
    await card('order-3').getByRole('button', { name: 'It did not, and no longer can…' }).click();
    execFileSync(once, ['keys', 'release', store, '--scope', 'shop', '--key', 'order-3', '--note', 'somebody else', '--yes']);
    await page.getByLabel('I checked').check();
    await page.getByLabel('Why?').fill('I saw nothing');
    await page.getByRole('button', { name: 'Release it' }).click();
    await page.getByRole('alert').filter({ hasText: 'refused' }).waitFor();
    await picture('refused');
    await page.getByRole('button', { name: 'Cancel' }).click();
});

step('release several, after a dry run', async () => {
    await page.reload();
    await cards(2);
    for (const box of await page.locator('article.card input[type=checkbox]').all()) await box.check();
    await page.getByRole('button', { name: 'Release them…' }).click();
    await page.getByRole('button', { name: 'Dry run' }).click();
    await page.getByText('2 of 2 would be released.').waitFor();
    await page.getByLabel('I checked').check();
    await page.getByLabel('Why?').fill('the batch never ran');
    await page.getByRole('button', { name: 'Release them', exact: true }).click();
    await page.getByText('Nothing waits for you.').waitFor();
});

step('numbers', async () => {
    await page.getByRole('link', { name: 'Numbers' }).click();
    await page.locator('figure', { hasText: 'Requests' }).getByText('/s').waitFor();
    await page.getByText('does not answer').first().waitFor();
    await page.getByRole('cell', { name: '50.0 %' }).waitFor();
    const route = page.getByRole('row', { name: /POST \/payments/ });
    await route.locator('td[data-head="Claim, 99 %"]').getByText('10 ms').waitFor();
    assert.equal(await route.locator('td[data-head="In flight"]').textContent(), '3');
    assert.equal(await page.locator('td[data-head="Executed"]').count(), 1);
    await picture('numbers');
    await accessible('numbers');
});

step('dead letters: their reasons, a dry run, and replayed', async () => {
    await page.goto(messages);
    await page.getByRole('link', { name: 'Messages' }).click();
    await page.getByRole('cell', { name: '<img src=x onerror=alert(4)>', exact: true }).waitFor();
    assert.equal(await page.locator('main img').count(), 0);
    await page.getByRole('cell', { name: 'the handler refused it: the handler answered 400' }).first().waitFor();
    await page.getByRole('link', { name: 'can be handled' }).first().waitFor();
    await page.getByRole('cell', { name: '2 rejected' }).waitFor(); // of the consumer's metrics
    await picture('messages');
    await accessible('messages');
    await fetch(`${other}mended`);
    await page.getByRole('button', { name: 'All of them' }).click();
    await page.getByRole('button', { name: 'Replay…' }).click();
    await page.getByRole('button', { name: 'Dry run' }).click();
    await page.getByText('2 of 2 would be published again.').waitFor();
    await page.getByLabel('Why?').fill('the handler is mended');
    await page.getByRole('button', { name: 'Replay', exact: true }).click();
    await page.getByText('No dead letters.').waitFor();
    await page.getByRole('link', { name: 'Audit' }).click();
    await page.getByRole('cell', { name: 'letter event-2 to orders' }).first().waitFor();
    await page.getByRole('link', { name: 'Operations', exact: true }).click();
    await page.getByLabel('State').selectOption('completed');
    await page.getByRole('button', { name: 'Filter' }).click();
    await page.locator('tbody tr').nth(1).waitFor();
    await page.goto(base);
});

step('another site cannot read or decide', async () => {
    const tab = await context.newPage();
    await tab.goto(other);
    const tried = await tab.evaluate(async (url) => {
        const results = [];
        for (const options of [
            {},
            { method: 'POST', body: '{}' },
            { method: 'POST', body: '{}', headers: { 'Content-Type': 'application/json' } },
        ]) {
            try {
                const answer = await fetch(`${url}api/${options.method ? 'settle' : 'records'}`, {
                    credentials: 'include',
                    ...options,
                });
                results.push(answer.status);
            } catch {
                results.push('blocked');
            }
        }
        return results;
    }, base);
    assert.deepEqual(tried, ['blocked', 'blocked', 'blocked']);
    const framed = await tab.evaluate(
        (url) =>
            new Promise((resolve) => {
                const frame = document.createElement('iframe');
                frame.onload = () => {
                    try {
                        resolve(frame.contentDocument === null ? 'blocked' : frame.contentDocument.body.textContent);
                    } catch {
                        resolve('blocked');
                    }
                };
                frame.src = url;
                document.body.append(frame);
            }),
        base,
    );
    assert.ok(framed === 'blocked' || framed === '');
    await tab.close();
});

step('a viewer on a phone at night may look, not decide', async () => {
    await page.getByRole('button', { name: 'Sign out' }).click();
    await page.getByRole('heading', { name: 'Sign in' }).waitFor();
    await accessible('sign in');
    await page.setViewportSize({ width: 390, height: 844 });
    await page.emulateMedia({ colorScheme: 'dark' });
    await page.goto(viewer);
    await page.getByRole('heading', { name: 'What needs a decision' }).waitFor();
    await page.getByText('You may look, not decide.').first().waitFor();
    assert.equal(await page.getByRole('button', { name: /took effect|did not/ }).count(), 0);
    const wide = await page.evaluate(() => document.documentElement.scrollWidth);
    assert.ok(wide <= 390, `the page is ${wide} wide`);
    await page.locator('.tile').nth(4).waitFor();
    await picture('phone');
    await accessible('phone');
    const status = await page.evaluate(async () => {
        const session = await (await fetch('api/session')).json();
        return (
            await fetch('api/settle', {
                method: 'POST',
                body: JSON.stringify({ note: 'x', role: 'operate' }),
                headers: { 'Content-Type': 'application/json', 'X-Once-Csrf': session.csrf },
            })
        ).status;
    });
    assert.equal(status, 403);
});

watch(page);
for (const [name, run] of steps) {
    try {
        await run();
        assert.deepEqual(
            complaints.filter((text) => !text.includes('status of 403') && !text.includes(other.slice(0, -1))),
            [],
        );
        console.log(`ok: ${name}`);
    } catch (error) {
        await picture('failed').catch(() => {});
        console.log(
            `FAILED: ${name}\n${error.stack}\nconsole: ${complaints.join('\n')}\n${await page
                .locator('main')
                .innerText()
                .catch(() => '')}`,
        );
        process.exitCode = 1;
        break;
    }
}
await context.close();
