// The page of `once ui`. What records say reaches the document as text and as attributes only: nothing is ever parsed as HTML.
const LOOKS_PATIENCE = 200; // requests that one list goes on by itself, if it finds few
const ROWS_WANTED = 50;
const HISTORY = 150; // points of a plot, one every 2 s

const state = { session: null, stats: null, peers: null, history: new Map(), previous: new Map(), view: 0, timer: null };
const $ = (id) => document.getElementById(id);

// ------------------------------------------------------------------------------------------------------------- elements

function el(name, properties, ...children) {
    const element = document.createElement(name);
    for (const [key, value] of Object.entries(properties || {})) {
        if (value === undefined || value === null || value === false) continue;
        if (key === 'class') element.className = value;
        else if (key.startsWith('on')) element.addEventListener(key.slice(2), value);
        else element.setAttribute(key, value === true ? '' : value);
    }
    for (const child of children.flat(9)) {
        if (child !== null && child !== undefined && child !== false) element.append(child instanceof Node ? child : String(child));
    }
    return element;
}

function svg(name, attributes, ...children) {
    const element = document.createElementNS('http://www.w3.org/2000/svg', name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    element.append(...children);
    return element;
}

function say(text) {
    const place = $('said');
    place.textContent = text;
    clearTimeout(say.timer);
    say.timer = setTimeout(() => {
        place.textContent = '';
    }, 8000);
}

// ---------------------------------------------------------------------------------------------------------------- words

const when = new Intl.DateTimeFormat('en-GB', { dateStyle: 'medium', timeStyle: 'medium' });

function time(value) {
    const date = new Date(value);
    if (!value || Number.isNaN(date.getTime())) return el('span', { class: 'dim' }, '–');
    return el('time', { datetime: date.toISOString(), title: `${date.toISOString()} (UTC)` }, when.format(date));
}

function span(ms) {
    if (ms === null || ms === undefined) return '–';
    if (ms < 1000) return `${ms < 10 ? Number(ms.toFixed(1)) : Math.round(ms)} ms`;
    const units = [
        ['d', 86400],
        ['h', 3600],
        ['min', 60],
        ['s', 1],
    ];
    let left = Math.floor(ms / 1000);
    const parts = [];
    for (const [unit, size] of units) {
        if (left >= size) {
            parts.push(`${Math.floor(left / size)} ${unit}`);
            left %= size;
        }
        if (parts.length === 2) break;
    }
    return parts.join(' ');
}

function size(bytes) {
    const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
    let at = 0;
    while (bytes >= 1024 && at < units.length - 1) {
        bytes /= 1024;
        at++;
    }
    return `${at === 0 ? bytes : bytes.toFixed(bytes < 10 ? 1 : 0)} ${units[at]}`;
}

const number = (value) => new Intl.NumberFormat('en-GB', { maximumFractionDigits: value < 10 ? 2 : 0 }).format(value);
const count = (n, one, many) => `${number(n)} ${n === 1 ? one : many}`;
const textOf = (record, name) => record[name] ?? (record[`${name}_base64`] ? `(bytes) ${record[`${name}_base64`]}` : '');
const titleOf = (record) =>
    textOf(record, 'description') ||
    (record.erased ? 'An operation whose texts were erased' : 'An operation without a description');
const isStuckPending = (record) => record.state === 'pending' && record.stuck;

function chip(record) {
    const words = {
        unknown: 'unknown',
        pending: record.stuck ? 'holder silent' : 'running',
        completed: 'completed',
        failed: 'failed',
    };
    return el('span', { class: `chip ${isStuckPending(record) ? 'stuck' : record.state}` }, words[record.state] || record.state);
}

// What a cause means, and where to look. docs/operations.md has the same in more words.
function causeOf(record) {
    const cause = textOf(record, 'cause');
    const known = [
        [/^timeout/, 'The backend did not answer in time. It may have done the work after all.'],
        [/^reset/, 'The connection to the backend ended before the response began.'],
        [/^response cut off/, 'The response was cut off: the backend was at work, and most likely did it.'],
        [/^status \d+/, `The backend answered with ${cause}, which tells nothing about the effect.`],
        [/^Once-Outcome: unknown/, 'The backend itself said that it does not know.'],
        [/^protocol switched/, 'The connection became something else than HTTP.'],
        [/^(no response|gateway stopped)/, 'The gateway gave up after the request had been sent.'],
        [/^lease over/, 'Its holder went silent, and another request with the key came.'],
    ];
    const found = known.find(([pattern]) => pattern.test(cause));
    if (found) return found[1];
    if (cause) return cause;
    return isStuckPending(record)
        ? 'Its holder has not renewed its lease: it died, hangs, or cannot reach the store.'
        : 'No cause is recorded.';
}

function checksOf(record) {
    const key = textOf(record, 'key');
    const checks = [
        `Ask the system that holds the effect (ledger, provider, mail server) for “${key}”. Its word counts, not a log of attempts.`,
    ];
    const holder = textOf(record, 'holder');
    if (record.lease_ms > 0) checks.push(`Its lease is live for ${span(record.lease_ms)}: its holder may be at work. Wait.`);
    else if (holder) checks.push(`Is ${holder} still at work on it? Look there, if it is a process that can come back.`);
    checks.push('Can it still happen later: a queue, a proxy that retries, a batch of tonight? Then stop that first.');
    if (record.policy !== 'hold') checks.push(`Policy ${record.policy}: the next request with this key runs it again by itself.`);
    return checks;
}

// ------------------------------------------------------------------------------------------------------------------ API

class Refusal extends Error {
    constructor(status, message, answer) {
        super(message);
        this.status = status;
        this.answer = answer;
    }
}

async function ask(path, body) {
    const options = { headers: {}, credentials: 'same-origin', cache: 'no-store' };
    if (body !== undefined) {
        options.method = 'POST';
        options.body = JSON.stringify(body);
        options.headers['Content-Type'] = 'application/json';
        if (state.session) options.headers['X-Once-Csrf'] = state.session.csrf;
    }
    let answer;
    try {
        answer = await fetch(`api/${path}`, options);
    } catch {
        throw new Refusal(0, 'once ui does not answer: is it still running?');
    }
    const json = await answer.json().catch(() => ({}));
    if (answer.ok) return json;
    if (answer.status === 401 && state.session && path !== 'login') {
        state.session = null;
        showLogin('The session has ended.');
    }
    throw new Refusal(answer.status, json.error || `answered ${answer.status}`, json);
}

// ------------------------------------------------------------------------------------------------------------- deciding

function confirmDialog(title, parts, action, run) {
    const problem = el('p', { class: 'notice bad', role: 'alert', hidden: true });
    const note = el('textarea', { required: true, maxlength: 200, rows: 2, name: 'note' });
    const send = el('button', { type: 'submit', class: action.danger ? 'danger' : 'main' }, action.text);
    const dialog = el(
        'dialog',
        { 'aria-labelledby': 'dialog-title' },
        el(
            'form',
            { method: 'dialog', onsubmit: submit },
            el('h1', { id: 'dialog-title' }, title),
            parts,
            el('label', {}, 'Why? This goes into the audit trail with your name; no personal data. (required)', note),
            problem,
            el('div', { class: 'row end' }, el('button', { type: 'button', onclick: () => dialog.close() }, 'Cancel'), send),
        ),
    );

    async function submit(event) {
        event.preventDefault();
        problem.hidden = true;
        if (!note.value.trim()) {
            problem.textContent = 'Say why: the note is missing.';
            problem.hidden = false;
            note.focus();
            return;
        }
        send.disabled = true;
        try {
            await run(note.value.trim(), new FormData(event.target));
            dialog.close();
        } catch (error) {
            const results = error.answer && error.answer.results;
            problem.textContent = results
                ? results
                      .map((result) => result.why)
                      .filter(Boolean)
                      .join(' ')
                : error.message;
            problem.hidden = false;
        }
        send.disabled = false;
    }
    dialog.addEventListener('close', () => dialog.remove());
    document.body.append(dialog);
    dialog.showModal();
    return dialog;
}

function briefOf(record) {
    return el('p', { class: 'notice' }, el('b', {}, titleOf(record)), el('br'), 'key ', el('code', {}, textOf(record, 'key')));
}

function forceBox(record) {
    if (!record.lease_ms) return null;
    return el(
        'label',
        { class: 'check' },
        el('input', { type: 'checkbox', name: 'force' }),
        `Its lease is live for ${span(record.lease_ms)}. I know that its holder is dead.`,
    );
}

function decideCompleted(record, after) {
    confirmDialog(
        'It took effect',
        [
            briefOf(record),
            el(
                'p',
                {},
                'Every later request with this key gets this answer. It must be true and enough for the client; an empty body with the right status is better than an invented one.',
            ),
            el(
                'label',
                {},
                'Status (200 to 599)',
                el('input', { name: 'status', type: 'number', min: 200, max: 599, value: 200, required: true }),
            ),
            el(
                'label',
                {},
                'Headers, one on each line (Name: value)',
                el('textarea', { name: 'headers', rows: 2 }, 'Content-Type: application/json'),
            ),
            el('label', {}, 'Body', el('textarea', { name: 'body', rows: 4 })),
            forceBox(record),
        ],
        { text: 'Settle as completed' },
        async (note, form) => {
            await ask('settle', {
                items: [{ id: record.id, claim: record.claim }],
                outcome: 'completed',
                note,
                status: Number(form.get('status')),
                body: form.get('body'),
                force: form.get('force') === 'on',
                headers: form
                    .get('headers')
                    .split('\n')
                    .map((line) => line.trim())
                    .filter(Boolean),
            });
            say('Settled: it is completed now.');
            after();
        },
    );
}

function decideFailed(records, after) {
    const many = records.length > 1;
    const items = records.map((record) => ({ id: record.id, claim: record.claim }));
    const preview = el(
        'ul',
        {},
        records.slice(0, 20).map((record) => el('li', {}, `${titleOf(record)}, key ${textOf(record, 'key')}`)),
        records.length > 20 ? el('li', {}, `and ${records.length - 20} more`) : null,
    );
    const dry = el('p', { role: 'status' });
    const tryIt = el(
        'button',
        {
            type: 'button',
            onclick: async () => {
                try {
                    const answer = await ask('settle', { items, outcome: 'failed', note: 'dry run', dry_run: true }).catch(
                        (error) => {
                            if (!error.answer || !error.answer.results) throw error;
                            return error.answer;
                        },
                    );
                    const refused = answer.results.filter((result) => !result.done);
                    dry.textContent = `${answer.done} of ${records.length} would be released.${refused.length ? ` Refused: ${refused[0].why}` : ''}`;
                } catch (error) {
                    dry.textContent = error.message;
                }
            },
        },
        'Dry run',
    );
    confirmDialog(
        many ? `Release ${records.length} operations` : 'It did not take effect, and no longer can',
        [
            many ? preview : briefOf(records[0]),
            el(
                'p',
                {},
                'The next request with this key runs it again. If the first attempt is still in flight somewhere, it takes effect twice.',
            ),
            el(
                'label',
                { class: 'check' },
                el('input', { type: 'checkbox', required: true }),
                'I checked: it has not happened, and nothing can make it happen any more.',
            ),
            many ? el('div', { class: 'row' }, tryIt, dry) : forceBox(records[0]),
        ],
        { text: many ? 'Release them' : 'Release it', danger: true },
        async (note, form) => {
            const answer = await ask('settle', { items, outcome: 'failed', note, force: form.get('force') === 'on' });
            const refused = answer.results.length - answer.done;
            say(
                `Released ${answer.done}.${refused ? ` ${refused} refused: ${answer.results.find((result) => !result.done).why}` : ''}`,
            );
            after();
        },
    );
}

function eraseButton(record, after) {
    if (state.session.role !== 'operate' || record.erased || (record.state !== 'completed' && record.state !== 'failed'))
        return null;
    return el(
        'p',
        {},
        el(
            'button',
            {
                type: 'button',
                class: 'danger',
                onclick: () =>
                    confirmDialog(
                        'Erase its texts',
                        [
                            briefOf(record),
                            el(
                                'p',
                                {},
                                'Key, description, cause, note, and the headers and body of the response are gone for good. ' +
                                    'Its outcome stays: it does not run again, and a repeated request gets the status alone.',
                            ),
                            el(
                                'p',
                                {},
                                'The files of a local store may have them until this was run on its machine: ',
                                el('code', {}, 'once keys erase --finish'),
                            ),
                        ],
                        { text: 'Erase its texts', danger: true },
                        async (note) => {
                            await ask('erase', { id: record.id, claim: record.claim, note });
                            say('Its texts are erased.');
                            after();
                        },
                    ),
            },
            'Erase its texts…',
        ),
    );
}

function actions(record, after) {
    if (!record.stuck && record.state !== 'pending') return null;
    if (state.session.role !== 'operate') {
        return el(
            'p',
            { class: 'dim' },
            'You may look, not decide. Somebody who may: ',
            el('code', {}, `once keys settle ${record.id.slice(0, 12)} …`),
        );
    }
    return el(
        'div',
        { class: 'row act' },
        el('button', { class: 'main', type: 'button', onclick: () => decideCompleted(record, after) }, 'It took effect…'),
        el(
            'button',
            { type: 'button', class: 'danger', onclick: () => decideFailed([record], after) },
            'It did not, and no longer can…',
        ),
    );
}

// ---------------------------------------------------------------------------------------------------------------- lists

// Goes through the store in bounded steps until there is a page of rows; `more` goes on from there.
function lister(parameters, show) {
    const list = { rows: [], cursor: null, looked: 0, damaged: 0, busy: false, ended: false, error: null };
    const mine = state.view;
    list.more = async () => {
        const goal = list.rows.length + ROWS_WANTED;
        list.busy = true;
        list.error = null;
        for (let i = 0; i < LOOKS_PATIENCE && !list.ended && list.rows.length < goal && mine === state.view; i++) {
            const query = new URLSearchParams(parameters);
            if (list.cursor) query.set('cursor', list.cursor);
            try {
                const answer = await ask(`records?${query}`);
                list.rows.push(...answer.records);
                list.cursor = answer.cursor;
                list.ended = answer.cursor === null;
                list.looked += answer.looked;
                list.damaged += answer.damaged;
            } catch (error) {
                list.error = error.message;
                break;
            }
            if (mine === state.view) show(list);
        }
        list.busy = false;
        if (mine === state.view) show(list);
    };
    return list;
}

function listFoot(list) {
    const total = state.stats ? state.stats.records : null;
    const seen = list.ended
        ? 'Looked at every record.'
        : `Looked at ${number(Math.min(list.looked, total ?? list.looked))}${total ? ` of about ${number(total)}` : ''} records.`;
    return [
        list.error ? el('p', { class: 'notice bad', role: 'alert' }, list.error) : null,
        list.damaged
            ? el('p', { class: 'notice bad' }, `${count(list.damaged, 'record', 'records')} cannot be read: run once fsck.`)
            : null,
        el(
            'div',
            { class: 'row' },
            el('span', { class: 'dim', role: 'status' }, list.busy ? `${seen} Looking…` : seen),
            list.ended || list.busy ? null : el('button', { type: 'button', onclick: () => list.more() }, 'Go on'),
        ),
    ];
}

function showDecide(main) {
    const place = el('div');
    const picked = new Set();
    main.replaceChildren(
        el('h1', {}, 'What needs a decision'),
        el('p', { class: 'dim' }, 'Operations whose outcome nobody knows, and those whose holder went silent. Oldest first.'),
        place,
    );
    const open = new Map();
    const list = lister({ stuck: '1' }, draw);
    const again = () => {
        state.previous.clear();
        refreshStats();
        route();
    };

    function bulk() {
        if (!picked.size) return null;
        return el(
            'div',
            { class: 'card picked row spread' },
            count(picked.size, 'operation is chosen', 'operations are chosen'),
            el(
                'button',
                {
                    type: 'button',
                    class: 'danger',
                    onclick: () =>
                        decideFailed(
                            list.rows.filter((row) => picked.has(row.id)),
                            again,
                        ),
                },
                'Release them…',
            ),
        );
    }
    function card(record) {
        let made = open.get(record.id);
        if (made) return made;
        const box = el('input', {
            type: 'checkbox',
            'aria-label': `Choose ${titleOf(record)}, key ${textOf(record, 'key')}`,
            onchange: () => {
                if (box.checked) picked.add(record.id);
                else picked.delete(record.id);
                draw(list);
            },
        });
        made = el(
            'article',
            { class: `card ${record.state}` },
            el(
                'div',
                { class: 'row' },
                state.session.role === 'operate' ? box : null,
                chip(record),
                el('h2', {}, el('a', { class: 'link', href: `#/operation/${record.id}` }, titleOf(record))),
                el('span', { class: 'dim' }, `${span(record.idle_ms)} ago`),
            ),
            el('p', {}, 'key ', el('code', {}, textOf(record, 'key'))),
            el(
                'div',
                { class: 'cols' },
                el(
                    'div',
                    {},
                    el('h3', {}, 'What is known'),
                    el(
                        'ul',
                        {},
                        el('li', {}, causeOf(record)),
                        el('li', {}, 'Asked ', time(record.created), record.epoch > 1 ? `, ${record.epoch} attempts` : ''),
                        textOf(record, 'holder') ? el('li', {}, `Held by ${textOf(record, 'holder')}`) : null,
                    ),
                ),
                el(
                    'div',
                    {},
                    el('h3', {}, 'What to check'),
                    el(
                        'ul',
                        {},
                        checksOf(record).map((check) => el('li', {}, check)),
                    ),
                ),
            ),
            actions(record, again),
        );
        open.set(record.id, made);
        return made;
    }
    function draw(now) {
        const rows = [...now.rows].sort((a, b) => (a.state === b.state ? b.idle_ms - a.idle_ms : a.state === 'unknown' ? -1 : 1));
        if (!rows.length && now.ended) {
            place.replaceChildren(
                el(
                    'div',
                    { class: 'empty card' },
                    el('b', {}, 'Nothing waits for you.'),
                    el('p', { class: 'dim' }, 'No operation is unknown, and no holder is silent.'),
                ),
                ...listFoot(now).filter(Boolean),
            );
            return;
        }
        place.replaceChildren(...rows.map(card), ...[bulk(), ...listFoot(now)].filter(Boolean));
    }
    list.more();
}

const FILTERS = [
    ['route', 'Route contains', 'POST /payments'],
    ['key', 'Key contains, or id', 'order-1'],
    ['scope_hash', 'Scope hash', 'a1b2'],
    ['older', 'Older than', '1h'],
    ['younger', 'Younger than', '1h'],
];

function showOperations(main, query) {
    const chosen = new URLSearchParams(query);
    const place = el('div', { 'aria-live': 'off' });
    const states = [
        ['', 'Any state'],
        ['stuck', 'Stuck or unknown'],
        ['pending', 'Pending'],
        ['completed', 'Completed'],
        ['failed', 'Failed'],
        ['unknown', 'Unknown'],
    ];
    const form = el(
        'form',
        {
            class: 'filters',
            role: 'search',
            onsubmit: (event) => {
                event.preventDefault();
                const wanted = new URLSearchParams();
                for (const [name, value] of new FormData(form)) if (value.trim()) wanted.set(name, value.trim());
                const isId = /^[0-9a-f]{64}$/i.test(wanted.get('key') || '');
                const hash = isId ? `#/operation/${wanted.get('key')}` : `#/operations?${wanted}`;
                if (location.hash === hash) route();
                else location.hash = hash;
            },
        },
        el(
            'label',
            {},
            'State',
            el(
                'select',
                { name: 'state' },
                states.map(([value, text]) => el('option', { value, selected: (chosen.get('state') || '') === value }, text)),
            ),
        ),
        FILTERS.map(([name, text, example]) =>
            el(
                'label',
                {},
                text,
                el('input', {
                    name,
                    value: chosen.get(name) || '',
                    placeholder: example,
                    autocomplete: 'off',
                    spellcheck: 'false',
                }),
            ),
        ),
        el('button', { class: 'main', type: 'submit' }, 'Filter'),
    );
    main.replaceChildren(el('h1', {}, 'Operations'), form, place);
    const parameters = Object.fromEntries(chosen);
    if (parameters.state === 'stuck') {
        delete parameters.state;
        parameters.stuck = '1';
    }
    const heads = ['State', 'What', 'Key', 'Age', 'Changed', 'Attempts', 'Status', 'Cause'];
    const list = lister(parameters, (now) => {
        const cells = (row) => [
            chip(row),
            el('a', { href: `#/operation/${row.id}` }, titleOf(row)),
            el('code', {}, textOf(row, 'key')),
            span(row.age_ms),
            `${span(row.idle_ms)} ago`,
            row.epoch,
            row.status || '–',
            textOf(row, 'cause') || '–',
        ];
        place.replaceChildren(
            now.rows.length
                ? table('Operations', heads, now.rows.map(cells), (i) => i > 2 && i < 7)
                : el(
                      'p',
                      { class: 'empty dim' },
                      now.busy ? 'Looking…' : now.ended ? 'No operation passes this filter.' : 'None so far.',
                  ),
            ...listFoot(now).filter(Boolean),
        );
    });
    list.more();
}

// ------------------------------------------------------------------------------------------------------------------ one

// Rows of cells; on a phone each row is a block, and each cell has its head.
function table(label, heads, rows, numbers = () => false) {
    const kind = (i) => (numbers(i) ? 'num' : null);
    return el(
        'div',
        { class: 'scroll', tabindex: '0', role: 'region', 'aria-label': label },
        el(
            'table',
            { class: 'stack' },
            el(
                'thead',
                {},
                el(
                    'tr',
                    {},
                    heads.map((head, i) => el('th', { scope: 'col', class: kind(i) }, head)),
                ),
            ),
            el(
                'tbody',
                {},
                rows.map((cells) =>
                    el(
                        'tr',
                        {},
                        cells.map((cell, i) => el('td', { 'data-head': heads[i], class: kind(i) }, cell)),
                    ),
                ),
            ),
        ),
    );
}

function facts(pairs) {
    return el(
        'dl',
        { class: 'facts' },
        pairs
            .filter(([, value]) => value !== null && value !== undefined && value !== '')
            .map(([name, value]) => [el('dt', {}, name), el('dd', {}, value)]),
    );
}

function lifeOf(answer) {
    const record = answer.record;
    const ends = {
        completed: ['good', 'Completed: it took effect, and its response is replayed'],
        failed: ['', 'Failed: it did not take effect, and can be claimed again'],
        unknown: ['bad', 'Unknown: it may or may not have taken effect'],
        pending: [record.stuck ? 'bad' : '', record.stuck ? 'Its holder went silent' : 'Its holder is at work'],
    };
    const steps = [[record.created, '', 'Asked for the first time']]; // in the order of time, as far as it is known
    const attempts = record.attempts || [];
    for (const attempt of attempts) {
        const by = textOf(attempt, 'holder');
        steps.push([
            attempt.ended,
            attempt.state === 'failed' ? '' : 'bad',
            `Attempt ${attempt.epoch} ended: ${attempt.state}${textOf(attempt, 'cause') ? ` (${textOf(attempt, 'cause')})` : ''}${by ? `, held by ${by}` : ''}`,
        ]);
    }
    if (answer.checkpoint) steps.push([answer.checkpoint.time, '', `Checkpoint ${answer.checkpoint.name}`]);
    if (answer.transaction) steps.push([answer.transaction.time, 'good', `Transaction ${answer.transaction.id} committed`]);
    for (const entry of answer.decisions || []) {
        steps.push([
            entry.time,
            '',
            `${entry.by}: ${entry.act}, ${entry.step}${entry.result ? ` ${entry.result}` : ''}${entry.note ? ` — ${entry.note}` : ''}`,
        ]);
    }
    steps.sort((a, b) => new Date(a[0] || record.created) - new Date(b[0] || record.created));
    if (record.epoch > attempts.length + 1)
        steps.splice(1, 0, [null, '', `Of the first ${record.epoch - 1 - attempts.length} attempts no more is kept`]);
    if (answer.decisions_cut) steps.push([null, '', 'The audit trail is long: once trace has decisions of before']);
    steps.push([
        record.changed,
        ends[record.state][0],
        `${record.epoch > 1 ? `Attempt ${record.epoch}. ` : ''}${ends[record.state][1]}${textOf(record, 'cause') ? ` (${textOf(record, 'cause')})` : ''}`,
    ]);
    for (const event of answer.events || []) {
        steps.push([
            event.time,
            event.state === 'dead' ? 'bad' : '',
            `Event ${event.type || ''} ${event.id}: ${event.state || 'seen'}${event.destination ? ` to ${event.destination}` : ''}${event.reason ? ` — ${event.reason}` : ''}`,
        ]);
        for (const handled of event.handled || []) steps.push([handled.time, 'good', `handled by ${handled.subscriber}`]);
    }
    return el(
        'ol',
        { class: 'life' },
        steps.map(([at, kind, text]) => el('li', { class: kind }, at ? time(at) : null, text)),
    );
}

function responseOf(record) {
    if (record.response_error) return el('p', { class: 'notice bad' }, `The response cannot be read: ${record.response_error}`);
    if (!record.response) return el('p', { class: 'dim' }, 'There is no response.');
    const place = el('div');
    const button = el(
        'button',
        {
            type: 'button',
            onclick: async () => {
                button.disabled = true;
                try {
                    const answer = await ask(`response?id=${record.id}`);
                    place.replaceChildren(
                        facts(answer.headers.map((header) => [header.name, header.value])),
                        answer.body_omitted
                            ? el('p', { class: 'dim' }, 'The body was not stored.')
                            : el('pre', { tabindex: '0', 'aria-label': 'Body' }, answer.body),
                        answer.cut ? el('p', { class: 'dim' }, 'Only its beginning is shown.') : '',
                    );
                } catch (error) {
                    place.replaceChildren(el('p', { class: 'notice bad', role: 'alert' }, error.message));
                }
                button.disabled = false;
            },
        },
        'Show what the client got',
    );
    return el(
        'div',
        {},
        facts([
            ['Status', record.response.status],
            ['Body', record.response.body_omitted ? 'not stored' : size(record.response.body_bytes)],
            ['Headers', record.response.headers.map((header) => header.name).join(', ')],
        ]),
        button,
        place,
    );
}

async function showOperation(main, id) {
    const mine = state.view;
    main.replaceChildren(el('p', { class: 'dim' }, 'Loading…'));
    let answer;
    try {
        answer = await ask(`record?id=${encodeURIComponent(id)}`);
    } catch (error) {
        if (mine === state.view && state.session)
            main.replaceChildren(el('h1', {}, 'This operation'), el('p', { class: 'notice bad', role: 'alert' }, error.message));
        return;
    }
    if (mine !== state.view) return;
    const record = answer.record;
    const again = () => {
        refreshStats();
        route();
    };
    main.replaceChildren(
        ...[
            el('p', {}, el('a', { class: 'link', href: '#/operations' }, '← Operations')),
            el('div', { class: 'row' }, el('h1', {}, titleOf(record)), chip(record)),
            answer.incomplete
                ? el('p', { class: 'notice bad' }, 'The database could not be asked: transaction and events may be missing.')
                : null,
            record.stuck
                ? el(
                      'section',
                      { class: `card ${record.state}` },
                      el(
                          'div',
                          { class: 'cols' },
                          el('div', {}, el('h3', {}, 'What is known'), el('p', {}, causeOf(record))),
                          el(
                              'div',
                              {},
                              el('h3', {}, 'What to check'),
                              el(
                                  'ul',
                                  {},
                                  checksOf(record).map((check) => el('li', {}, check)),
                              ),
                          ),
                      ),
                      actions(record, again),
                  )
                : null,
            el('section', { class: 'card' }, el('h2', {}, 'Its life'), lifeOf(answer)),
            el(
                'div',
                { class: 'pair' },
                el(
                    'section',
                    { class: 'card' },
                    el('h2', {}, 'The record'),
                    facts([
                        ['Key', el('code', {}, textOf(record, 'key'))],
                        ['State', record.state],
                        ['Cause', textOf(record, 'cause')],
                        ['Holder', textOf(record, 'holder')],
                        ['Policy', record.policy],
                        ['Attempt', record.epoch],
                        ['Age', span(record.age_ms)],
                        ['Last change', `${span(record.idle_ms)} ago`],
                        [
                            'Lease',
                            record.lease_until
                                ? [
                                      record.lease_ms > 0 ? `live for ${span(record.lease_ms)}, until ` : 'over since ',
                                      time(record.lease_until),
                                  ]
                                : '',
                        ],
                        ['Expires', record.expires ? time(record.expires) : 'never'],
                        ['Size', size(record.bytes)],
                        ['Note', textOf(record, 'note')],
                        [
                            'Scope hash',
                            el(
                                'a',
                                { class: 'link mono', href: `#/operations?scope_hash=${record.scope_hash}` },
                                record.scope_hash,
                            ),
                        ],
                        ['Id', el('code', {}, record.id)],
                    ]),
                ),
                el('section', { class: 'card' }, el('h2', {}, 'The response'), responseOf(record), eraseButton(record, again)),
            ),
        ].filter(Boolean),
    );
    main.focus({ preventScroll: true });
}

// ------------------------------------------------------------------------------------------------------- events, audit

// A list that can be chosen from, for those who may decide: `cells` of an item, and how it is named and told from others.
function chooser(label, heads, items, cells, nameOf, idOf) {
    const picked = new Set();
    const operate = state.session.role === 'operate';
    const boxes = [];
    const rows = items.map((item) => {
        if (!operate) return cells(item);
        const box = el('input', {
            type: 'checkbox',
            'aria-label': `Choose ${nameOf(item)}`,
            onchange: () => {
                if (box.checked) picked.add(idOf(item));
                else picked.delete(idOf(item));
            },
        });
        boxes.push(box);
        return [box, ...cells(item)];
    });
    const all = el(
        'button',
        {
            type: 'button',
            onclick: () => {
                const wanted = picked.size < items.length;
                for (const box of boxes) box.checked = wanted;
                picked.clear();
                if (wanted) for (const item of items) picked.add(idOf(item));
            },
        },
        'All of them',
    );
    return { picked, all, element: table(label, operate ? ['Choose', ...heads] : heads, rows) };
}

// Asks for a note, and first, if wanted, what would happen.
function decideMany(picked, path, words, body, after) {
    if (!picked.size) {
        say('Choose some first.');
        return;
    }
    const problems = (answer) => (answer.results || []).filter((result) => !result.done).map((result) => result.why);
    const dry = el('p', { role: 'status' });
    const tryIt = el(
        'button',
        {
            type: 'button',
            onclick: async () => {
                dry.textContent = 'Looking…';
                try {
                    const answer = await ask(path, { ...body(), note: 'dry run', dry_run: true }).catch((error) => {
                        if (!error.answer || !error.answer.results) throw error;
                        return error.answer;
                    });
                    const refused = problems(answer);
                    dry.textContent = `${answer.done} of ${picked.size} ${words.would}.${refused.length ? ` ${refused[0]}` : ''}`;
                } catch (error) {
                    dry.textContent = error.message;
                }
            },
        },
        'Dry run',
    );
    confirmDialog(
        words.title,
        [
            el('p', {}, words.text),
            el('p', {}, count(picked.size, 'is chosen.', 'are chosen.')),
            el('div', { class: 'row' }, tryIt, dry),
        ],
        { text: words.button, danger: words.danger },
        async (note) => {
            const done = await ask(path, { ...body(), note });
            const refused = problems(done);
            say(`${number(done.done)}: done.${refused.length ? ` ${refused.length} not: ${refused[0]}` : ''}`);
            after();
        },
    );
}

// What waits in the outbox, by itself: there need not be a relay that could be asked.
async function waitingEvents() {
    try {
        const { events, limit } = await ask('outbox?waiting=1');
        if (!events.length) return el('p', { class: 'dim' }, 'No event waits to be published.');
        const all = events.length === limit ? `${limit} or more events wait` : count(events.length, 'event waits', 'events wait');
        return el(
            'p',
            { class: events[0].age_ms > 60000 ? 'notice bad' : 'dim' },
            `${all} to be published, the oldest for ${span(events[0].age_ms)}.`,
        );
    } catch {
        return null; // the list below says why
    }
}

async function showEvents(main) {
    const mine = state.view;
    main.replaceChildren(el('h1', {}, 'Events'));
    let answer;
    let waiting;
    try {
        waiting = await waitingEvents();
        answer = await ask('outbox');
    } catch (error) {
        if (mine === state.view) main.append(el('p', { class: 'notice bad', role: 'alert' }, error.message));
        return;
    }
    if (mine !== state.view) return;
    main.append(
        ...[
            waiting,
            el('h2', {}, 'Dead events'),
            el('p', { class: 'dim' }, 'The destination refused them for good, or they failed too often. Repair the reason first.'),
        ].filter(Boolean),
    );
    if (!answer.events.length) {
        main.append(el('div', { class: 'empty card' }, el('b', {}, 'No dead events.')));
        return;
    }
    const heads = ['Topic', 'Type', 'Key', 'Age', 'Tries', 'Reason', 'Id'];
    const list = chooser(
        'Dead events',
        heads,
        answer.events,
        (event) => [
            event.topic,
            event.type,
            event.key ?? '–',
            span(event.age_ms),
            event.tries,
            event.reason,
            el('code', {}, event.id),
        ],
        (event) => `event ${event.id}`,
        (event) => event.id,
    );
    main.append(list.element);
    if (answer.events.length === answer.limit) main.append(el('p', { class: 'dim' }, `The oldest ${answer.limit} are shown.`));
    if (state.session.role !== 'operate') return;
    const body = () => ({ ids: [...list.picked] });
    const again = {
        title: 'Publish them again',
        text: 'They keep their ids and queue behind everything that waits: later events of the same key may have been published already.',
        button: 'Publish again',
        would: 'are still dead, and would be published again',
    };
    const drop = {
        title: 'Drop them',
        text: 'These events will never be published.',
        button: 'Drop them',
        would: 'are still dead, and would be dropped',
        danger: true,
    };
    main.append(
        el(
            'div',
            { class: 'row card picked' },
            list.all,
            el(
                'button',
                { class: 'main', type: 'button', onclick: () => decideMany(list.picked, 'outbox/retry', again, body, route) },
                'Publish again…',
            ),
            el(
                'button',
                { class: 'danger', type: 'button', onclick: () => decideMany(list.picked, 'outbox/drop', drop, body, route) },
                'Drop…',
            ),
        ),
    );
}

// ------------------------------------------------------------------------------------------------------------- messages

const REASONS = {
    rejected: 'the handler refused it',
    tries: 'it failed too often',
    mismatch: 'its id was used with another content',
    'no-id': 'it has no id',
};

// What became of the message since, by the record of its id.
function letterRecord(letter) {
    if (!letter.record) return '–';
    const words = { completed: 'handled since', failed: 'can be handled', pending: 'being handled', unknown: 'unknown: decide' };
    return el('a', { href: `#/operation/${letter.record}` }, words[letter.state] || letter.state);
}

async function showLetters(place, from) {
    const mine = state.view;
    const name = state.session.letters[from];
    place.replaceChildren(el('p', { class: 'dim' }, 'Asking the broker…'));
    let answer;
    try {
        answer = await ask(`letters?from=${from}`);
    } catch (error) {
        if (mine !== state.view) return;
        place.replaceChildren(
            el('p', { class: 'notice bad', role: 'alert' }, error.message),
            el('button', { type: 'button', onclick: () => showLetters(place, from) }, 'Try again'),
        );
        return;
    }
    if (mine !== state.view) return;
    if (!answer.letters.length) {
        place.replaceChildren(el('div', { class: 'empty card' }, el('b', {}, 'No dead letters.')));
        return;
    }
    const heads = ['Time', 'Message', 'Reason', 'Status', 'Tries', 'From', 'Its record'];
    const list = chooser(
        `Dead letters of ${name}`,
        heads,
        answer.letters,
        (letter) => [
            time(letter.time),
            el('code', {}, textOf(letter, 'id') || '–'),
            `${REASONS[letter.reason] || textOf(letter, 'reason') || '–'}${textOf(letter, 'detail') ? `: ${textOf(letter, 'detail')}` : ''}`,
            letter.status || '–',
            letter.tries || '–',
            textOf(letter, 'source') || '–',
            letterRecord(letter),
        ],
        (letter) => `letter ${textOf(letter, 'id')}`,
        (letter) => letter.mark,
    );
    const words = {
        title: 'Replay them',
        text: 'They are published to where they came from, to be handled again. What was handled meanwhile is recognised by its id.',
        button: 'Replay',
        would: 'would be published again',
    };
    place.replaceChildren(
        ...[
            list.element,
            answer.more ? el('p', { class: 'dim' }, `The first ${answer.limit} are shown; once dlq list has all.`) : null,
            state.session.role === 'operate'
                ? el(
                      'div',
                      { class: 'row card picked' },
                      list.all,
                      el(
                          'button',
                          {
                              class: 'main',
                              type: 'button',
                              onclick: () =>
                                  decideMany(
                                      list.picked,
                                      'letters/replay',
                                      words,
                                      () => ({ from: String(from), marks: [...list.picked] }),
                                      () => showLetters(place, from),
                                  ),
                          },
                          'Replay…',
                      ),
                  )
                : null,
        ].filter(Boolean),
    );
}

// Of each consumer that was named: what waits, and for whom.
function drawConsumers(place) {
    const consumers = (state.peers || []).filter((peer) => peer.kind === 'consume');
    const heads = ['Consumer', 'Lag', 'Parked', 'Paused', 'Retries', 'Dead letters since it began'];
    const known = (value) => (value === null ? 'unknown' : number(value));
    place.replaceChildren(
        ...[
            consumers.length
                ? table(
                      'Consumers',
                      heads,
                      consumers.map((peer) => {
                          if (!peer.up) return [peer.url, peer.error, '–', '–', '–', '–'];
                          const dead = peer.samples.filter(
                              (sample) => sample.name === 'once_consume_dead_letters_total' && sample.value > 0,
                          );
                          return [
                              peer.url,
                              known(sum(peer.samples, 'once_consume_lag')),
                              known(sum(peer.samples, 'once_consume_parked')),
                              known(sum(peer.samples, 'once_consume_paused')),
                              known(sum(peer.samples, 'once_consume_retries_total')),
                              dead.map((sample) => `${number(sample.value)} ${sample.labels.reason}`).join(', ') || '0',
                          ];
                      }),
                      (i) => i > 0 && i < 5,
                  )
                : null,
            consumers.some((peer) => sum(peer.samples, 'once_consume_parked') > 0)
                ? el(
                      'p',
                      { class: 'notice bad' },
                      'Parked messages may have been handled, and wait for a person, with those of the same key behind them: ',
                      el('a', { class: 'link', href: '#/decide' }, 'decide'),
                      ' about each (its name is TOPIC/PARTITION@OFFSET), in the store of that consumer.',
                  )
                : null,
        ].filter(Boolean),
    );
}

function showMessages(main) {
    state.consumers = el('div');
    main.replaceChildren(el('h1', {}, 'Messages'), state.consumers);
    drawConsumers(state.consumers);
    state.session.letters.forEach((name, from) => {
        const place = el('div');
        main.append(
            el('h2', {}, 'Dead letters ', el('span', { class: 'dim mono' }, name)),
            el('p', { class: 'dim' }, 'Messages that a consumer gave up. Repair the reason first, then replay them.'),
            place,
        );
        showLetters(place, from);
    });
    if (!state.session.letters.length) {
        main.append(
            el('p', { class: 'notice' }, 'No dead letters were named. Start it with the store of the consumer, and --dlq:'),
            el('pre', {}, 'once ui … --dlq kafka://127.0.0.1:9092/orders.dlq'),
        );
    }
}

// ---------------------------------------------------------------------------------------------------------------- audit

function showAudit(main) {
    const mine = state.view;
    const heads = ['No.', 'Time', 'Who', 'What', 'Step', 'About', 'Note'];
    const trail = { entries: [], cursor: '', faults: 0, error: null, busy: false };
    const place = el('div');
    main.replaceChildren(el('h1', {}, 'What people decided'), place);

    async function more() {
        trail.busy = true;
        trail.error = null;
        try {
            const answer = await ask(`audit?cursor=${trail.cursor}`);
            trail.entries.push(...answer.entries.reverse());
            trail.cursor = answer.cursor;
            trail.faults += answer.faults;
        } catch (error) {
            trail.error = error.message;
        }
        trail.busy = false;
        if (mine === state.view) draw();
    }
    function draw() {
        const ended = trail.cursor === null;
        const read = count(trail.entries.length, 'entry', 'entries');
        place.replaceChildren(
            ...[
                trail.error ? el('p', { class: 'notice bad', role: 'alert' }, trail.error) : null,
                trail.faults
                    ? el('p', { class: 'notice bad' }, 'The trail is not whole: run once audit verify.')
                    : el(
                          'p',
                          { class: 'dim', role: 'status' },
                          ended ? `${read}, whole. Newest first.` : `The newest ${read}; these are whole. Newest first.`,
                      ),
                trail.entries.length
                    ? table(
                          'Audit trail',
                          heads,
                          trail.entries.map((entry) => [
                              entry.number,
                              time(entry.time),
                              entry.by || '–',
                              entry.act || '–',
                              `${entry.step || ''}${entry.result ? `: ${entry.result}` : ''}`,
                              entry.record
                                  ? el('a', { href: `#/operation/${entry.record}` }, entry.record.slice(0, 12))
                                  : entry.object || entry.on || '–',
                              entry.note || '',
                          ]),
                      )
                    : el('p', { class: 'empty dim' }, ended ? 'No decisions yet.' : ''),
                ended ? null : el('button', { type: 'button', onclick: more }, 'Older ones'),
            ].filter(Boolean),
        );
    }
    more();
}

// ---------------------------------------------------------------------------------------------------------- live numbers

function sum(samples, name, labels = {}) {
    let total = null;
    for (const sample of samples) {
        if (sample.name === name && Object.entries(labels).every(([key, value]) => sample.labels[key] === value))
            total = (total ?? 0) + sample.value;
    }
    return total;
}

// The growth of a counter in a second; null: not known yet, or it began again.
function rate(key, value, at) {
    const before = state.previous.get(key);
    if (value === null) return null;
    if (!before || before.at !== at) state.previous.set(key, { value, at });
    if (!before || before.at === at) return before ? (before.rate ?? null) : null;
    const grown = value >= before.value && at > before.at ? (value - before.value) / ((at - before.at) / 1000) : null;
    state.previous.get(key).rate = grown;
    return grown;
}

// The value below which this part of the observations since the last look lie, from the buckets of a histogram.
function quantile(key, samples, name, part, at) {
    const buckets = new Map();
    for (const sample of samples) {
        if (sample.name === `${name}_bucket`) buckets.set(sample.labels.le, (buckets.get(sample.labels.le) ?? 0) + sample.value);
    }
    const grown = [...buckets]
        .map(([le, value]) => [le === '+Inf' ? Infinity : Number(le), rate(`${key}${le}`, value, at)])
        .sort((a, b) => a[0] - b[0]);
    const all = grown.length ? grown[grown.length - 1][1] : null;
    if (!all) return null;
    const found = grown.find(([, value]) => value >= part * all);
    return found && Number.isFinite(found[0]) ? found[0] * 1000 : null;
}

function remember(key, value) {
    const points = state.history.get(key) || [];
    points.push(value);
    if (points.length > HISTORY) points.shift();
    state.history.set(key, points);
    return points;
}

function plot(title, value, points, unit, bad) {
    const known = points.filter((point) => point !== null && point !== undefined);
    const numbers = known.length === 1 ? [known[0], known[0]] : known;
    const top = Math.max(...numbers, 1e-9);
    const line = numbers.map(
        (point, i) => `${((i / Math.max(numbers.length - 1, 1)) * 100).toFixed(2)},${(52 - (point / top) * 46).toFixed(2)}`,
    );
    const shown = value === null || value === undefined ? '–' : unit === 'ms' ? span(value) : `${number(value)}${unit}`;
    return el(
        'figure',
        { class: `plot ${bad && value > 0 ? 'bad' : ''}` },
        el('figcaption', { class: 'dim' }, title),
        el('b', {}, shown),
        svg(
            'svg',
            {
                viewBox: '0 0 100 56',
                preserveAspectRatio: 'none',
                role: 'img',
                'aria-label': `${title}, the last minutes: now ${shown}`,
            },
            svg('polygon', { class: 'area', points: line.length ? `0,56 ${line.join(' ')} 100,56` : '' }),
            svg('polyline', { class: 'stroke', points: line.join(' ') }),
        ),
    );
}

const PLOTS = {
    gate: [
        ['Requests', 'once_requests_total', {}, '/s'],
        ['Executed', 'once_requests_total', { outcome: 'run' }, '/s'],
        ['Replayed', 'once_requests_total', { outcome: 'replay' }, '/s'],
        ['In flight', 'once_in_flight', {}, ''],
        ['Ended in doubt', 'once_claims_total', { end: 'doubted' }, '/s', true],
        ['Lost claims', 'once_claims_total', { end: 'lost' }, '/s', true],
        ['Refused, store away', 'once_requests_total', { outcome: 'error' }, '/s', true],
        ['Claim, 99 %', 'once_claim_seconds', 0.99, 'ms'],
    ],
    relay: [
        ['Published', 'once_relay_published_total', {}, '/s'],
        ['Waiting events', 'once_relay_lag_events', {}, ''],
        ['Lag', 'once_relay_lag_seconds', {}, ' s'],
        ['Dead events', 'once_relay_dead_events', {}, '', true],
        ['Retries', 'once_relay_retries_total', {}, '/s', true],
    ],
    consume: [
        ['Handled', 'once_consume_handled_total', {}, '/s'],
        ['Duplicates', 'once_consume_duplicates_total', {}, '/s'],
        ['Lag', 'once_consume_lag', {}, ''],
        ['Parked', 'once_consume_parked', {}, '', true],
        ['Dead letters', 'once_consume_dead_letters_total', {}, '', true],
        ['Handler, 99 %', 'once_consume_handler_seconds', 0.99, 'ms'],
    ],
};

function measure(peer) {
    return PLOTS[peer.kind].map(([title, name, labels, unit, bad]) => {
        const key = `${peer.url} ${title}`;
        let value;
        if (typeof labels === 'number') value = quantile(key, peer.samples, name, labels, peer.at);
        else if (unit === '/s') value = rate(key, sum(peer.samples, name, labels), peer.at);
        else value = sum(peer.samples, name, labels);
        return [title, value, remember(key, value), unit, bad];
    });
}

const OUTCOMES = { run: 'Executed', replay: 'Replayed', busy: 'Busy', mismatch: 'Mismatch', unknown: 'Unknown', error: 'Error' };

// Requests by route and outcome since the gate began, and how each route does now.
function routesOf(peer) {
    const routes = new Map();
    const seen = new Set(['run', 'replay']);
    for (const sample of peer.samples) {
        if (sample.name !== 'once_requests_total') continue;
        const found = routes.get(sample.labels.route || '–') || { all: 0 };
        const outcome = sample.labels.outcome;
        found.all += sample.value;
        found[outcome] = (found[outcome] ?? 0) + sample.value;
        if (sample.value > 0) seen.add(outcome);
        routes.set(sample.labels.route || '–', found);
    }
    const rows = [...routes]
        .filter(([, found]) => found.all > 0)
        .sort((a, b) => b[1].all - a[1].all)
        .slice(0, 20);
    if (!rows.length) return null;
    const outcomes = [...seen].sort((a, b) => (OUTCOMES[a] ? 0 : 1) - (OUTCOMES[b] ? 0 : 1));
    const heads = [
        'Route',
        'Now',
        'In flight',
        'Claim, 99 %',
        'Requests',
        ...outcomes.map((name) => OUTCOMES[name] || name),
        'Replay ratio',
    ];
    const cells = ([route, found]) => {
        const own = peer.samples.filter((sample) => (sample.labels.route || '–') === route);
        const now = rate(`${peer.url} ${route}`, found.all, peer.at);
        const claim = quantile(`${peer.url} ${route} claim`, own, 'once_claim_seconds', 0.99, peer.at);
        return [
            route,
            now === null ? '–' : `${number(now)}/s`,
            number(sum(own, 'once_in_flight') ?? 0),
            span(claim),
            number(found.all),
            ...outcomes.map((name) => number(found[name] ?? 0)),
            `${((found.replay ?? 0) / found.all * 100).toFixed(1)} %`,
        ];
    };
    return table('Requests by route', heads, rows.map(cells), (i) => i > 0);
}

function versionOf(peer) {
    const info = peer.samples.find((sample) => sample.name.endsWith('build_info'));
    return info
        ? Object.entries(info.labels)
              .filter(([name]) => name !== 'route')
              .map(([name, value]) => `${name} ${value}`)
              .join(', ')
        : '';
}

function drawNumbers(main) {
    const parts = [el('h1', {}, 'Numbers')];
    if (!state.peers) parts.push(el('p', { class: 'dim' }, 'Asking…'));
    else if (!state.peers.length) {
        parts.push(
            el(
                'p',
                { class: 'notice' },
                'No gate, relay or consumer was named. Start it with --gate, --relay or --consume and the address of their metrics:',
            ),
            el('pre', {}, 'once ui … --gate http://127.0.0.1:9090/metrics'),
        );
    }
    for (const peer of state.peers || []) {
        parts.push(
            el(
                'h2',
                {},
                `${peer.kind} `,
                el('span', { class: 'dim mono' }, peer.url),
                ' ',
                el('span', { class: `chip ${peer.up ? 'good' : 'bad'}` }, peer.up ? 'up' : 'does not answer'),
            ),
            el('p', { class: 'dim' }, peer.up ? versionOf(peer) : peer.error),
        );
        if (peer.up)
            parts.push(
                el(
                    'div',
                    { class: 'plots' },
                    peer.plots.map((each) => plot(...each)),
                ),
                peer.kind === 'gate' ? routesOf(peer) : '',
            );
    }
    parts.push(
        el('h2', {}, 'Versions'),
        facts([
            ['once ui', state.session.version],
            ['Store', [state.session.store, state.stats && state.stats.server ? `, ${state.stats.server}` : '']],
            ...(state.peers || []).map((peer) => [peer.kind, versionOf(peer) || (peer.up ? 'not said' : 'does not answer')]),
        ]),
    );
    main.replaceChildren(...parts.filter(Boolean));
}

// ----------------------------------------------------------------------------------------------------------------- tiles

function tile(name, value, bad, title) {
    return el('div', { class: `tile ${bad ? 'bad' : ''}`, title }, el('b', {}, value), el('span', {}, name));
}

function drawTiles() {
    const stats = state.stats;
    const place = $('tiles');
    const badge = $('stuck-count');
    if (!stats) {
        place.replaceChildren(tile('counting', '…'));
        return;
    }
    if (!stats.up) {
        place.replaceChildren(
            el(
                'div',
                { class: 'tile bad wide', role: 'alert' },
                el('b', {}, 'The store does not answer'),
                el('span', {}, stats.error),
            ),
        );
        return;
    }
    badge.hidden = !stats.stuck;
    badge.textContent = stats.stuck ? number(stats.stuck) : '';
    document.title = stats.stuck ? `(${number(stats.stuck)}) once` : 'once';
    const part = (is, max) => (max ? ` of ${number(max)}` : '');
    place.replaceChildren(
        ...[
            tile('need a decision', number(stats.stuck), stats.stuck > 0),
            tile('pending', number(stats.pending)),
            tile('completed', number(stats.completed)),
            tile('failed', number(stats.failed)),
            tile(
                `records${part(stats.records, stats.max_records)}`,
                number(stats.records),
                stats.max_records && stats.records > stats.max_records * 0.8,
            ),
            tile(
                `size${stats.max_bytes ? ` of ${size(stats.max_bytes)}` : ''}`,
                size(stats.bytes),
                stats.max_bytes && stats.bytes > stats.max_bytes * 0.8,
            ),
            tile(
                stats.expired ? `expired, not removed for up to ${span(stats.behind_ms)}` : 'expired, not yet removed',
                number(stats.expired),
                stats.behind_ms > 3600000,
            ),
            stats.messages
                ? tile(
                      `messages in the inbox, removed up to ${span(stats.messages_behind_ms)} late`,
                      number(stats.messages),
                      stats.messages_behind_ms > 21600000,
                  )
                : null,
            tile('oldest', stats.records ? span(stats.oldest_ms) : '–'),
            stats.damaged + stats.quarantined > 0
                ? tile('damaged: run once fsck', number(stats.damaged + stats.quarantined), true)
                : null,
        ].filter(Boolean),
    );
    place.title = `Counted ${new Date(stats.at).toLocaleTimeString()}`;
}

async function refreshStats() {
    try {
        state.stats = (await ask('stats')).stats;
    } catch (error) {
        if (!state.session) return;
        state.stats = { up: false, error: error.message };
    }
    drawTiles();
}

async function refreshPeers() {
    try {
        state.peers = (await ask('metrics')).peers;
    } catch {
        return;
    }
    for (const peer of state.peers || []) peer.plots = measure(peer);
    if (!state.session) return;
    if (location.hash.startsWith('#/numbers')) drawNumbers($('main'));
    if (location.hash.startsWith('#/messages')) drawConsumers(state.consumers);
    $('nav-messages').hidden = !state.session.letters.length && !(state.peers || []).some((peer) => peer.kind === 'consume');
}

async function tick() {
    clearTimeout(state.timer);
    if (state.session && !document.hidden) {
        await refreshStats();
        if (state.session) await refreshPeers();
    }
    clearTimeout(state.timer);
    state.timer = setTimeout(tick, state.stats === null || state.peers === null ? 400 : 2000);
}

// --------------------------------------------------------------------------------------------------------------- routes

function route() {
    if (!state.session) return;
    if (state.shown !== location.hash) window.scrollTo(0, 0);
    state.shown = location.hash;
    state.view++;
    const [path, query] = (location.hash || '#/decide').slice(2).split('?');
    const main = $('main');
    for (const link of document.querySelectorAll('nav a')) {
        if (link.getAttribute('href') === `#/${path.split('/')[0]}`) link.setAttribute('aria-current', 'page');
        else link.removeAttribute('aria-current');
    }
    if (path.startsWith('operation/')) showOperation(main, path.slice(10));
    else if (path === 'operations') showOperations(main, query);
    else if (path === 'numbers') drawNumbers(main);
    else if (path === 'events') showEvents(main);
    else if (path === 'messages') showMessages(main);
    else if (path === 'audit') showAudit(main);
    else showDecide(main);
}

function showLogin(why) {
    $('nav').hidden = $('who').hidden = $('tiles').hidden = true;
    const problem = el('p', { class: 'notice bad', role: 'alert', hidden: !why }, why || '');
    const field = el('input', { type: 'password', name: 'token', autocomplete: 'off', required: true });
    $('main').replaceChildren(
        el(
            'form',
            {
                class: 'card login',
                onsubmit: async (event) => {
                    event.preventDefault();
                    try {
                        begin(await ask('login', { token: field.value.trim() }));
                    } catch (error) {
                        problem.textContent = error.message;
                        problem.hidden = false;
                    }
                },
            },
            el('h1', {}, 'Sign in'),
            problem,
            el('p', { class: 'dim' }, 'once ui printed an address with a token, for one browser. Or give your own token.'),
            el('label', {}, 'Token', field),
            el('p', {}, el('button', { class: 'main', type: 'submit' }, 'Sign in')),
        ),
    );
    field.focus();
}

function begin(session) {
    state.session = session;
    $('nav').hidden = $('who').hidden = $('tiles').hidden = false;
    $('store').textContent = $('store').title = session.store;
    $('role').textContent = session.role === 'operate' ? 'may decide' : 'may look';
    $('role').className = `chip ${session.role}`;
    $('name').textContent = session.name;
    $('nav-events').hidden = !session.postgres;
    $('nav-messages').hidden = !session.letters.length;
    drawTiles();
    route();
    tick();
}

async function start() {
    const token = /^#([a-z2-7]{32})$/.exec(location.hash);
    $('logout').addEventListener('click', async () => {
        await ask('logout', {}).catch(() => {});
        state.session = null;
        showLogin('');
    });
    window.addEventListener('hashchange', route);
    document.addEventListener('visibilitychange', () => {
        if (!document.hidden) tick();
    });
    if (token) history.replaceState(null, '', location.pathname); // it must not stay in the history
    try {
        begin(token ? await ask('login', { token: token[1] }) : await ask('session'));
    } catch (error) {
        showLogin(token ? error.message : '');
    }
}

start();
