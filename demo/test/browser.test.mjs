// The demo in a real Chromium, with a real relay behind it.

import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { existsSync, readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { after, before, describe, test } from 'node:test';
import decodeQR from 'qr/decode.js';
import { browser, buildSotto, launch, Person, Relay } from './kit.mjs';

const skip = existsSync(browser) ? false : `there is no ${browser}`;
if (skip) console.error(`\nSKIPPED: ${skip}, so the demo is not tried in a browser (apt-get install chromium)\n`);

const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
const phone = { viewport: { width: 390, height: 800 }, isMobile: true, hasTouch: true, colorScheme: 'dark' };
let chromium, relay, ann, ben;

before(async () => {
  if (skip) return;
  relay = new Relay(buildSotto());
  [chromium] = await Promise.all([launch(), relay.start()]);
  [ann, ben] = await Promise.all([Person.come(chromium, relay), Person.come(chromium, relay, phone)]);
});

after(async () => {
  await chromium?.close();
  await relay?.stop();
});

const both = (f) => Promise.all([f(ann), f(ben)]);
/** Holds that what both see has no serious fault by axe, and is not wider than a phone. */
async function audit(what) {
  await both(async (p) => {
    await p.page.waitForTimeout(50);
    const wide = await p.page.evaluate(() => Math.max(...['html', '#main', '.messages'].map((s) => document.querySelector(s)).map((e) => (e ? e.scrollWidth - e.clientWidth : 0))));
    assert.ok(wide <= 0, `${what}: ${wide} pixels too wide`);
    await p.page.evaluate(axe);
    const faults = await p.page.evaluate(async () => (await window.axe.run(document)).violations
      .map((v) => `${v.impact}: ${v.id}: ${v.nodes.map((n) => n.target).join(' ')}`));
    assert.deepEqual(faults.filter((f) => /^(serious|critical)/.test(f)), [], what);
  });
}

/** The widest name that there can be. */
const wide = (name) => name.padEnd(40, 'W');

const text = (p, locator) => p.page.locator(locator).textContent();

/** Returns what a QR code made of squares says. */
function readQR(path, size) {
  const scale = 4;
  const width = size * scale;
  const data = new Uint8Array(width * width * 4).fill(255);
  for (const [, x, y] of path.matchAll(/M(\d+) (\d+)/g)) {
    for (let dy = 0; dy < scale; dy++) data.fill(0, ((y * scale + dy) * width + x * scale) * 4, ((y * scale + dy) * width + (+x + 1) * scale) * 4);
  }
  return decodeQR({ width, height: width, data });
}

test('a pairing link and its QR code lead to a contact', { skip }, async () => {
  await ben.go('me');
  await ben.page.waitForFunction(() => document.querySelector('#pairing-link').textContent.includes('relay='));
  const link = await text(ben, '#pairing-link');
  const svg = ben.page.locator('.qr svg');
  const size = (await svg.getAttribute('viewBox')).split(' ')[2];
  assert.equal(readQR(await svg.locator('path').getAttribute('d'), +size), link);
  assert.ok(link.startsWith(`${relay.url}demo/#add=sotto://`));
  assert.match(link, /&card=\d+&/);

  await ann.page.goto(link);
  await ann.connected();
  await ann.page.getByLabel('Name').fill('Ben');
  await ann.page.keyboard.press('Enter');
  await ann.page.getByRole('heading', { name: 'Ben' }).waitFor();
  assert.equal(new URL(ann.page.url()).hash, `#/chats/${ben.key}`);
  await ben.add(ann, wide('Ann'));
});

test('what is no pairing link is refused in words', { skip }, async () => {
  await ann.go('chats');
  for (const [wrong, want] of [
    ['nonsense', 'not a pairing string'], [ann.key, 'that is your own key'], ['ff'.repeat(32), 'weak-key'],
    [(await pairingOf(ben)).replace(/relay=.{43}/, 'relay=' + 'A'.repeat(42) + 'E'), /another key than|weak-key/],
  ]) {
    await ann.page.getByLabel('Pairing link or key').fill(wrong);
    await ann.page.getByRole('button', { name: 'Add', exact: true }).click();
    await ann.page.getByRole('alert').filter({ hasText: want }).waitFor();
  }
});

test('a pairing link to another relay is added only if the user wants it', { skip }, async () => {
  const link = (await pairingOf(ben)).replace(/@.*/, '@elsewhere.example/brep?tls=1');
  await ann.go('chats');
  ann.agrees = false;
  await ann.page.getByLabel('Pairing link or key').fill(link);
  await ann.page.getByLabel('Name').fill('Ben elsewhere');
  await ann.page.getByRole('button', { name: 'Add', exact: true }).click();
  ann.agrees = true;
  assert.match(ann.asked, /wss:\/\/elsewhere\.example\/brep.*uses its own relay only/s);
  assert.equal(new URL(ann.page.url()).hash, '#/chats');
  assert.equal(await ann.page.getByText('Ben elsewhere').count(), 0);
  await ann.page.getByLabel('Pairing link or key').fill('');
  await ann.page.getByLabel('Name').fill('');
});

async function pairingOf(p) {
  await p.go('me');
  const pairing = await text(p, '#pairing');
  await p.go(`chats/${ann.key}`);
  return pairing;
}

test('two pages chat sealed, and see that it has arrived', { skip }, async () => {
  await ann.go(`chats/${ben.key}`);
  ann.sent = [];
  await ann.say('hello <b>Ben</b>');
  await ben.sees('hello <b>Ben</b>');
  await ann.sees('hello <b>Ben</b>', 'received');
  assert.ok(ann.sent.length > 0 && ann.sent.every((frame) => !frame.includes('Ben')), 'it went over the wire sealed');
  ann.sent = undefined;
  await ben.say('hello Ann');
  await ann.sees('hello Ann');
  await ben.sees('hello Ann', 'received');
  await ann.page.getByLabel('as JSON').check();
  await ann.say('{"move": [1, 2]}');
  await ann.say('{"move": ');
  await ann.page.getByRole('alert').filter({ hasText: 'That is no JSON' }).waitFor();
  await ann.page.getByLabel('as JSON').uncheck();
  await ben.sees('"move": [');
  await ann.page.getByLabel('as JSON').check();
  await ann.say('{"play": "Hamlet", "from": "19:30", "to": "23:00"}');
  await ben.sees('Hamlet'); // which is no game
  await ann.page.getByLabel('as JSON').uncheck();
  await ben.go('relay');
  assert.match(await text(ben, '.log'), /sealed text from/);
  assert.equal(await ben.page.locator('.log').getByText(/not sealed|signed text/).count(), 0);
  await ben.go(`chats/${ann.key}`);
});

test('what is typed while a message is being sealed stays', { skip }, async () => {
  const field = ann.page.getByLabel('Message', { exact: true });
  await field.evaluate((f) => {
    f.value = 'quickly said';
    f.form.requestSubmit();
    f.value = 'and the next';
  });
  await ben.sees('quickly said');
  assert.equal(await field.inputValue(), 'and the next');
  await field.fill('');
});

test('names, messages, rooms and files are text, whatever is in them', { skip }, async () => {
  const markup = '<img src=x onerror=alert(1)><b id=ours>';
  await ann.add(ben, markup);
  await ann.say(`${markup} javascript:alert(1)`);
  await ben.sees(markup);
  await ann.page.setInputFiles('#pick', { name: `<img src=x>\u202egpj.exe`, mimeType: 'text/html', buffer: Buffer.from(markup) });
  const accept = ben.page.getByRole('button', { name: 'Accept <img src=x>gpj.exe' }); // not "exe.jpg"
  await accept.click();
  const save = ben.page.getByRole('link', { name: 'Save <img src=x>gpj.exe' });
  const [download] = await Promise.all([ben.page.waitForEvent('download'), save.click()]);
  assert.match(download.suggestedFilename(), /gpj\.exe$/);
  await both((p) => p.go('rooms'));
  await both((p) => p.page.getByLabel('Your name there').fill(markup));
  await both((p) => p.page.getByRole('button', { name: 'Enter' }).click());
  await both((p) => p.page.getByLabel('Say to the room').fill(markup));
  await ann.page.keyboard.press('Enter');
  await ben.page.locator('.who').getByText(markup).waitFor();
  await both((p) => p.page.getByRole('button', { name: 'Leave' }).click());
  await both(async (p) => {
    for (const place of ['rooms', 'relay', `chats/${p === ann ? ben.key : ann.key}`]) {
      await p.go(place);
      assert.equal(await p.page.locator('#ours, [src="x"]').count(), 0, place);
    }
    assert.notEqual(p.asked, '1');
  });
  await ann.add(ben, 'Ben');
});

test('a file of 20 MB that is dropped arrives intact', { skip }, async () => {
  const sent = await ann.page.evaluate(async () => {
    const bytes = new Uint8Array(20_000_000);
    for (let i = 0; i < bytes.length; i += 65_536) crypto.getRandomValues(bytes.subarray(i, i + 65_536));
    const data = new DataTransfer();
    data.items.add(new File([bytes], 'holiday.bin'));
    const event = (type) => new DragEvent(type, { dataTransfer: data, bubbles: true, cancelable: true });
    for (const type of ['dragover', 'drop']) document.querySelector('.talk').dispatchEvent(event(type));
    const sum = await crypto.subtle.digest('SHA-256', bytes);
    return Array.from(new Uint8Array(sum), (b) => b.toString(16).padStart(2, '0')).join('');
  });
  await ben.page.getByRole('button', { name: 'Accept holiday.bin' }).click();
  const save = ben.page.getByRole('link', { name: 'Save holiday.bin' });
  await save.waitFor();
  const [download] = await Promise.all([ben.page.waitForEvent('download'), save.click()]);
  assert.equal(download.suggestedFilename(), 'holiday.bin');
  const bytes = readFileSync(await download.path());
  assert.equal(bytes.length, 20_000_000);
  assert.equal(createHash('sha256').update(bytes).digest('hex'), sent);
  await ann.sees('holiday.bin', 'received');
});

test('a file that is not wanted is refused, and one from a stranger is not even offered', { skip }, async () => {
  const file = (name) => ({ name, mimeType: 'text/plain', buffer: Buffer.alloc(100_000) });
  await ann.page.setInputFiles('#pick', file('unwanted.txt'));
  await ben.page.getByRole('button', { name: 'Refuse unwanted.txt' }).click();
  await ann.sees('unwanted.txt', 'failed');
  await ann.page.setInputFiles('#pick', file('forgotten.txt'));
  await ben.page.getByRole('button', { name: 'Refuse forgotten.txt' }).waitFor();
  await ben.page.getByRole('button', { name: 'Remove' }).click(); // and who could refuse it then?
  await ann.sees('forgotten.txt', 'failed');
  await ben.add(ann, wide('Ann'));
  await ben.say('hello again');
  await ann.sees('hello again', 'received');
  const eve = await Person.come(chromium, relay);
  await eve.add(ben, 'Ben');
  await eve.page.setInputFiles('#pick', file('strange.txt'));
  await eve.sees('strange.txt', 'failed');
  await eve.say('who am I?');
  await ben.go('chats');
  await ben.page.getByRole('link', { name: /stranger/ }).click();
  await ben.sees('who am I?');
  assert.equal(await ben.page.getByText('strange.txt').count(), 0);
  await ben.page.getByRole('button', { name: 'Block' }).click();
  await ben.page.getByRole('link', { name: /stranger/ }).waitFor({ state: 'detached' });
  assert.deepEqual(eve.faults, []);
  await eve.context.close();
});

test('a page that was away gets its messages, over a restart of the relay', { skip }, async () => {
  await ben.page.close();
  await ann.go(`chats/${ben.key}`);
  await ann.say('while you were away');
  await ann.sees('while you were away', 'kept by the relay');
  await relay.stop();
  await ann.page.locator('#link[data-link="offline"]').waitFor();
  await ann.say('while nobody was there');
  await ann.sees('while nobody was there', 'waiting for the relay');
  await ann.go('rooms');
  await ann.page.getByRole('button', { name: 'Enter' }).click();
  await ann.page.getByRole('alert').filter({ hasText: 'There is no connection' }).waitFor();
  await ann.page.locator('#room').fill('library'); // is better
  await ann.page.getByRole('button', { name: 'Enter' }).click();
  await ann.go('relay');
  await ann.page.getByRole('button', { name: 'Ask what it can do' }).click();
  await ann.page.getByText('Waiting for the relay').waitFor();
  assert.match(await text(ann, '.facts'), /down; tried again by itself/);
  await relay.start();
  await ann.connected();
  await ann.page.getByText('"dialect": "brep"').waitFor();
  await ann.go('rooms');
  await ann.page.getByRole('heading', { name: 'library' }).waitFor();
  await ann.page.locator('#room').fill('lobby');
  await ann.page.getByRole('button', { name: 'Leave' }).click();
  await ann.go(`chats/${ben.key}`);
  await ann.sees('while nobody was there', 'kept by the relay');
  await ben.open();
  await ben.page.getByRole('link', { name: /Ann.*2 unread/ }).click();
  await ben.sees('while you were away');
  await ben.sees('while nobody was there');
  await ben.sees('hello again'); // of before
  await audit('a talk');
  await ann.sees('while nobody was there', 'received');
});

test('rooms are for all who enter', { skip }, async () => {
  await both((p) => p.go('rooms'));
  await ann.page.getByLabel('Your name there').fill(wide('Ann'));
  await ann.page.getByRole('button', { name: 'Enter' }).click();
  await ann.page.getByText('You are the first here.').waitFor();
  await ben.page.getByLabel('Your name there').fill(wide('Ben'));
  await ben.page.getByRole('button', { name: 'Enter' }).click();
  await ben.page.getByText('1 other is here.').waitFor();
  await ben.page.getByLabel('Say to the room').fill('anybody?');
  await ben.page.keyboard.press('Enter');
  await ann.sees('anybody?', 'Ben');
  await ann.page.getByLabel('Say to the room').fill('me!');
  await ann.page.keyboard.press('Enter');
  await ben.sees('me!', 'Ann');
  await audit('a room');
  await both((p) => p.page.getByRole('button', { name: 'Leave' }).click());
});

/** Has both play a game, and returns them in the order of who begins. */
async function sitDown(title) {
  await both(async (p) => {
    await p.go('games');
    await p.page.getByRole('button', { name: `Play ${title}` }).click();
  });
  await both((p) => p.page.locator('.game-state').waitFor());
  return ann.key < ben.key ? [ann, ben] : [ben, ann];
}

const says = (p, words) => p.page.locator('.game-state').filter({ hasText: words }).waitFor();

async function getUp() {
  await both((p) => p.page.getByRole('button', { name: 'Leave', exact: true }).click());
}

test('tic-tac-toe is played to its end, by keyboard, over a restart of the relay', { skip }, async () => {
  const [x, o] = await sitDown('Tic-tac-toe');
  for (const [n, name] of ['row 1, column 1', 'row 2, column 1', 'row 1, column 2', 'row 2, column 2', 'row 1, column 3'].entries()) {
    const p = n % 2 === 0 ? x : o;
    await says(p, 'It is your turn');
    if (n === 2) {
      await relay.stop();
      await p.page.locator('#link[data-link="offline"]').waitFor();
    }
    await p.page.getByRole('button', { name }).focus();
    await p.page.keyboard.press('Enter');
    if (n === 2) await relay.start();
  }
  await Promise.all([says(x, 'You have won.'), says(o, 'You have lost.')]);
  await audit('tic-tac-toe');
  await getUp();
});

test('rock, paper, scissors is played to its end', { skip }, async () => {
  await sitDown('Rock, paper, scissors');
  for (const [round, [a, b, score]] of [['rock', 'rock', '0 to 0'], ['rock', 'paper', '0 to 1'], ['scissors', 'paper', '1 to 1'], ['paper', 'rock', '2 to 1']].entries()) {
    await ann.page.getByRole('button', { name: a }).click();
    await says(ben, 'The other one has chosen');
    assert.equal(await ben.page.locator('.rounds li').count(), round, 'nothing is shown yet');
    await ben.page.getByRole('button', { name: b }).click();
    await both((p) => p.page.locator('.rounds li').nth(round).waitFor());
    await says(ann, score);
  }
  await Promise.all([says(ann, 'You have won.'), says(ben, 'You have lost.')]);
  await audit('rock, paper, scissors');
  await getUp();
});

test('who leaves a game tells the other one', { skip }, async () => {
  await sitDown('Tic-tac-toe');
  await ann.page.getByRole('button', { name: 'Leave', exact: true }).click();
  await says(ben, 'The other one has left.');
  await ben.page.getByRole('button', { name: 'Leave', exact: true }).click();
});

// These wait more than they work, so they go on beside each other.
describe('side by side', { concurrency: true }, () => {
  test('pong is played to its end, and both see the same', { skip }, async () => {
    const [left, right] = await sitDown('Pong');
    await both((p) => p.page.keyboard.down('ArrowDown')); // away from most balls
    const end = /^(\d) to (\d)\. You have (won|lost)\.$/;
    const results = await Promise.all([left, right].map(async (p) => {
      const state = p.page.locator('.game-state');
      await state.filter({ hasText: /You have/ }).waitFor({ timeout: 120_000 }); // a busy machine plays slowly
      return end.exec(await state.textContent());
    }));
    await both((p) => p.page.keyboard.up('ArrowDown'));
    const [[, a, b, how], [, c, d, other]] = results;
    assert.deepEqual([a, b], [d, c]);
    assert.notEqual(how, other);
    await audit('pong');
    await getUp();
  });

  test('who closes the page has left, and loses what was not shown', { skip }, async () => {
    const [cat, dan] = await Promise.all([Person.come(chromium, relay), Person.come(chromium, relay)]);
    for (const p of [cat, dan]) {
      await p.go('games');
      await p.page.getByRole('button', { name: 'Play Rock, paper, scissors' }).click();
    }
    await dan.page.getByRole('button', { name: 'rock' }).click();
    await says(cat, 'The other one has chosen');
    await crash(dan); // without a chance to say so
    await cat.page.getByRole('button', { name: 'paper' }).click();
    await says(cat, 'The other one has not shown the choice. You have won.');
    assert.deepEqual(cat.faults, []);
    await Promise.all([cat, dan].map((p) => p.context.close()));
  });

  test('a page without a network says so, and gets its messages when it has one again', { skip }, async () => {
    const [eve, fay] = await Promise.all([Person.come(chromium, relay), Person.come(chromium, relay)]);
    await eve.add(fay, 'Fay');
    await fay.add(eve, 'Eve');
    await eve.say('before');
    await fay.sees('before');
    await eve.offline(true);
    await fay.say('are you there?');
    await eve.say('nobody hears me');
    await eve.page.locator('#link[data-link="offline"]').waitFor();
    await fay.sees('are you there?', 'kept by the relay');
    assert.equal(await eve.page.getByText('are you there?').count(), 0);
    assert.equal(await fay.page.getByText('nobody hears me').count(), 0);
    await eve.offline(false);
    await eve.connected();
    await eve.sees('are you there?');
    await fay.sees('nobody hears me');
    await eve.sees('nobody hears me', 'received');
    assert.deepEqual([...eve.faults, ...fay.faults], []);
    await Promise.all([eve, fay].map((p) => p.context.close()));
  });
});

/** Ends a page as the end of the browser would. */
async function crash(p) {
  const session = await p.context.newCDPSession(p.page);
  session.send('Page.crash').catch(() => undefined);
  await p.page.waitForEvent('crash');
}

test('a second tab asks before it takes over', { skip }, async () => {
  const second = await ann.context.newPage();
  await second.goto(relay.url);
  await second.getByRole('button', { name: 'Use it here' }).click();
  await second.locator('#link[data-link="connected"]').waitFor();
  await ann.page.getByRole('heading', { name: 'Another tab has taken over.' }).waitFor();
  await second.close();
  await ann.page.getByRole('button', { name: 'Use this one' }).click();
  await ann.connected();
});

test('axe finds no serious fault on the other pages', { skip }, async () => {
  for (const place of ['chats', 'games', 'me', 'relay']) {
    await both((p) => p.go(place));
    await audit(place);
  }
});

test('every control is reached with the Tab key, has a name, and shows that it has the focus', { skip }, async () => {
  for (const place of [`chats/${ben.key}`, 'rooms', 'games', 'me', 'relay']) {
    await ann.go(place);
    await ann.page.evaluate(() => {
      document.activeElement.blur();
      getSelection().removeAllRanges();
    });
    const missed = await ann.page.evaluate(() => {
      window.missed = new Set([...document.querySelectorAll('a[href], button, input, textarea, summary, [tabindex="0"]')].filter((e) => e.checkVisibility()));
      return window.missed.size;
    });
    assert.ok(missed > 5);
    for (let n = 0; n < missed + 2; n++) {
      await ann.page.keyboard.press('Tab');
      const fault = await ann.page.evaluate(() => {
        const e = document.activeElement;
        window.missed.delete(e);
        if (e === document.body) return undefined;
        const shown = e.type === 'file' ? e.nextElementSibling : e; // whose label is to be seen
        const { outlineStyle, outlineWidth } = getComputedStyle(shown);
        return outlineStyle === 'none' || outlineWidth === '0px' ? e.outerHTML.slice(0, 200) : undefined;
      });
      assert.equal(fault, undefined, `${place}: no focus to be seen`);
    }
    assert.deepEqual(await ann.page.evaluate(() => [...window.missed].map((e) => e.outerHTML.slice(0, 200))), [], place);
  }
});

test('the policy of the page has the browser refuse what the page does not do', { skip }, async () => {
  const page = await ann.context.newPage();
  await page.goto(relay.url);
  await page.getByRole('button', { name: 'Use it here' }).waitFor(); // and it is left alone
  const refused = await page.evaluate(async (elsewhere) => {
    await new Promise((resolve) => setTimeout(resolve)); // what a debugger evaluates itself may do more
    const heard = [];
    addEventListener('securitypolicyviolation', (e) => heard.push(e.effectiveDirective));
    const did = [];
    const attempt = async (f) => {
      try {
        await f();
      } catch (err) {
        did.push(err.name);
      }
    };
    await attempt(() => (document.body.innerHTML = '<p onclick="1">'));
    await attempt(() => (document.createElement('script').textContent = 'window.ran = 1'));
    await attempt(() => Function('window.ran = 1')());
    await attempt(() => fetch(elsewhere));
    await attempt(() => new Promise((resolve, reject) => {
      const socket = new WebSocket(elsewhere.replace('http', 'ws'));
      socket.onerror = () => reject(new Error());
      socket.onopen = resolve;
    }));
    for (const tag of ['img', 'iframe', 'script', 'style']) {
      const e = document.createElement(tag);
      if (tag === 'style') e.textContent = 'p { color: red }';
      else if (tag !== 'script') e.src = elsewhere;
      else await attempt(() => (e.src = elsewhere));
      document.body.append(e);
    }
    for (let n = 0; n < 600 && new Set(heard).size < 5; n++) await new Promise((resolve) => setTimeout(resolve, 100));
    return { heard: [...new Set(heard)].sort(), did, ran: window.ran };
  }, relay.url.replace('127.0.0.1', 'far.test'));
  assert.equal(refused.ran, undefined);
  assert.deepEqual(refused.did, ['TypeError', 'TypeError', 'EvalError', 'TypeError', 'Error', 'TypeError']);
  assert.deepEqual(refused.heard, ['connect-src', 'frame-src', 'img-src', 'require-trusted-types-for', 'style-src-elem']);
  await page.close();
});

test('a relay that has another key is not trusted before the user agrees', { skip }, async () => {
  await relay.stop();
  const other = new Relay(relay.program);
  other.port = relay.port;
  await other.start();
  relay = other;
  await ann.page.getByRole('button', { name: 'Its key has changed' }).click();
  await ann.connected();
  await ben.page.getByRole('button', { name: 'Its key has changed' }).waitFor();
});

test('a page that comes over http from elsewhere says why it does not work', { skip }, async () => {
  const page = await ann.context.newPage();
  await page.goto(relay.url.replace('127.0.0.1', 'far.test'));
  await page.locator('#main').getByText('Browsers encrypt only in pages that come over https://').waitFor();
  await page.close();
});

test('the page had no faults, and asked nobody else for anything', { skip }, () => {
  assert.deepEqual([...ann.faults, ...ben.faults], []);
});
