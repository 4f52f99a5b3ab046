// The rules of the games, and the tables they are played at, without a browser.

import assert from 'node:assert/strict';
import { join } from 'node:path';
import { mock, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { build } from 'esbuild';
import { scratch } from './kit.mjs';

const dir = scratch();
const games = fileURLToPath(new URL('../src/games', import.meta.url));
await build({ entryPoints: ['tictactoe', 'rps', 'pong', 'table'].map((n) => join(games, `${n}.ts`)), outdir: dir, outExtension: { '.js': '.mjs' }, format: 'esm' });
const load = (name) => import(join(dir, `${name}.mjs`));
const [ttt, rps, pong, { Tables, isPlay }] = await Promise.all(['tictactoe', 'rps', 'pong', 'table'].map(load));

mock.timers.enable({ apis: ['setTimeout', 'setInterval'] });

test('tic-tac-toe: moves that are allowed, and how games end', () => {
  const play = (squares) => squares.reduce((b, at, i) => b && ttt.move(b, at, i % 2 === 0 ? 'X' : 'O'), ttt.emptyBoard);
  for (const [squares, mark, line] of [
    [[0, 3, 1, 4, 2], 'X', [0, 1, 2]],
    [[0, 2, 1, 4, 8, 6], 'O', [2, 4, 6]],
    [[1, 0, 4, 2, 7], 'X', [1, 4, 7]],
  ]) {
    assert.deepEqual(ttt.winner(play(squares)), { mark, line });
    assert.equal(ttt.move(play(squares), 5, ttt.turn(play(squares))), undefined, 'a move after the end');
  }
  const draw = play([0, 1, 2, 4, 3, 5, 7, 6, 8]);
  assert.ok(ttt.isOver(draw) && ttt.winner(draw) === undefined);
  for (const at of [-1, 9, 1.5, '0', null, undefined, NaN, {}]) assert.equal(ttt.move(ttt.emptyBoard, at, 'X'), undefined);
  assert.equal(ttt.move(ttt.emptyBoard, 0, 'O'), undefined, 'O begins');
  assert.equal(play([4, 4]), undefined, 'a square that is taken');
});

/** Two players whose messages are handed over when `run` is called. */
function rpsPair() {
  const queue = [];
  const rounds = [];
  const names = ['ann', 'ben'];
  const matches = names.map((self, i) => new rps.Match(
    { table: 't', self, peer: names[1 - i] }, async (m) => queue.push([1 - i, structuredClone(m)]) > 0, (...r) => rounds.push([self, ...r]),
    () => rounds.push([self, 'withheld']),
  ));
  const run = async () => {
    while (queue.length > 0) {
      const [to, m] = queue.shift();
      await matches[to].take(m);
    }
  };
  return { matches, queue, rounds, run };
}

test('rock, paper, scissors: who beats whom', () => {
  for (const [a, b] of [['rock', 'scissors'], ['scissors', 'paper'], ['paper', 'rock']]) {
    assert.deepEqual([rps.compare(a, b), rps.compare(b, a), rps.compare(a, a)], [1, -1, 0]);
  }
});

test('rock, paper, scissors: a match with a tie', async () => {
  const { matches: [ann, ben], rounds, run } = rpsPair();
  for (const [a, b] of [['rock', 'paper'], ['rock', 'rock'], ['paper', 'rock'], ['scissors', 'paper']]) {
    await Promise.all([ann.choose(a), ben.choose(b)]);
    await run();
  }
  assert.deepEqual([ann.score, ben.score], [{ mine: 2, theirs: 1 }, { mine: 1, theirs: 2 }]);
  assert.ok(ann.isOver && ben.isOver);
  assert.deepEqual(rounds.filter(([who]) => who === 'ann').map((r) => r[3]), [-1, 0, 1, 1]);
});

test('rock, paper, scissors: nothing is shown before the other one has committed', async () => {
  const { matches: [ann, ben], queue } = rpsPair();
  await ann.choose('rock');
  assert.deepEqual(queue.map(([, m]) => Object.keys(m)), [['round', 'commit']]);
  // Ben's commitment comes while ann's is still being made: hers goes out first.
  queue.length = 0;
  const other = rpsPair();
  const choosing = other.matches[0].choose('rock');
  await other.matches[0].take({ round: 1, commit: '0'.repeat(64) });
  await choosing;
  assert.deepEqual(other.queue.map(([, m]) => Object.keys(m)), [['round', 'commit'], ['round', 'pick', 'nonce']]);
  assert.equal(ben.hasChosen, false);
});

test('rock, paper, scissors: who does not show his choice within 20 seconds has lost', async () => {
  const { matches: [ann, ben], queue, rounds, run } = rpsPair();
  await ann.choose('rock');
  await ben.choose('scissors');
  await run(); // both have shown
  mock.timers.tick(20_000);
  assert.deepEqual(rounds.map(([, what]) => what).sort(), ['rock', 'scissors']);
  await ann.choose('rock');
  mock.timers.tick(60_000);
  assert.equal(rounds.length, 2, 'who has not committed may think');
  await ben.choose('rock');
  await ann.take(queue.at(-1)[1]); // she shows, he is silent
  await null;
  mock.timers.tick(19_999);
  assert.equal(rounds.length, 2);
  mock.timers.tick(1);
  assert.deepEqual(rounds[2], ['ann', 'withheld']);
});

test('rock, paper, scissors: cheats are found', async () => {
  const nonce = 'ab'.repeat(32);
  const place = { table: 't', round: 1, player: 'ben' };
  const commit = await rps.commitment(place, 'rock', nonce);
  for (const [what, messages] of Object.entries({
    'another choice': [{ round: 1, commit }, { round: 1, pick: 'paper', nonce }],
    'no choice': [{ round: 1, commit }, { round: 1, pick: 'well', nonce }],
    'another nonce': [{ round: 1, commit }, { round: 1, pick: 'rock', nonce: 'cd'.repeat(32) }],
    'the commitment of somebody else': [{ round: 1, commit: await rps.commitment({ ...place, player: 'ann' }, 'rock', nonce) }, { round: 1, pick: 'rock', nonce }],
    'the commitment of another round': [{ round: 1, commit: await rps.commitment({ ...place, round: 2 }, 'rock', nonce) }, { round: 1, pick: 'rock', nonce }],
    'a choice without a commitment': [{ round: 1, pick: 'rock', nonce }],
    'two commitments': [{ round: 1, commit }, { round: 1, commit }],
    'a later round': [{ round: 2, commit }],
    'no message': [null],
    'no hash': [{ round: 1, commit: 'rock' }],
  })) {
    const { matches: [ann] } = rpsPair();
    await ann.choose('paper');
    const take = async () => {
      for (const m of messages) await ann.take(m);
    };
    await assert.rejects(take, Error, what);
    assert.deepEqual(ann.score, { mine: 0, theirs: 0 }, what);
  }
});

test('pong: the ball stays in the field, and games end', () => {
  const ends = new Set();
  for (let game = 0; game < 50; game++) {
    const s = pong.newState();
    let steps = 0;
    let atWall = 0;
    for (; pong.winner(s) === undefined; steps++) {
      assert.ok(steps < 60 * 600, 'it does not end');
      pong.step(s, 1 / 60);
      assert.ok(s.y >= 0 && s.y <= pong.field.height && s.x > -6 && s.x < pong.field.width + 6, JSON.stringify(s));
      atWall = s.y > pong.field.ball ? 0 : atWall + 1;
      assert.ok(atWall <= 2, 'it leaves the wall'); // 2: a paddle may send it back there
      s.paddles[game % 2] = pong.clampPaddle(s.y); // one plays well
    }
    ends.add(pong.winner(s));
    assert.equal(pong.winner(s), game % 2);
  }
  assert.equal(ends.size, 2);
  const guess = { ...pong.newState(), wait: 0, x: pong.field.width + 1 };
  pong.advance(guess, 1 / 60);
  assert.deepEqual(guess.score, [0, 0], 'who has not the ball gives no points');
  for (const v of [null, 1, {}, { ...pong.newState(), x: NaN }, { ...pong.newState(), score: [1] }, { ...pong.newState(), paddles: ['1', 2] }]) {
    assert.equal(pong.toState(v), undefined);
  }
});

/** Two players on a line that hands over at once. */
function tablePair() {
  const sent = [];
  const away = new Map(); // what is said of whom
  const all = {};
  for (const [self, peer] of [['ann', 'ben'], ['ben', 'ann']]) {
    const send = async (to, play) => {
      sent.push([self, play]);
      if (away.has(to)) return away.get(to);
      all[to]?.take(self, structuredClone(play));
      return 'taken';
    };
    all[self] = new Tables({ self, find: async () => peer, send });
  }
  return { ...all, sent, away };
}

test('tables: two sit down, whoever comes first', async () => {
  const { ann, ben, sent } = tablePair();
  const signal = new AbortController().signal;
  const [a, b] = await Promise.all([ann.sit('pong', signal), ben.sit('pong', signal)]);
  assert.equal(a.id, b.id);
  assert.deepEqual([a.first, b.first], [true, false]);
  b.send(1); // before she listens
  const heard = [];
  a.listen((d) => heard.push(d), () => heard.push('left'));
  b.send(2);
  b.leave();
  assert.deepEqual(heard, [1, 2, 'left']);
  a.send('is anybody there?');
  assert.equal(sent.at(-1)[1].left, true, 'who is not at the table any more says so');
  assert.deepEqual(heard.slice(3), ['left']);
});

/** Lets n seconds pass. */
async function pass(n) {
  for (let i = 0; i < n; i++) {
    mock.timers.tick(1000);
    for (let k = 0; k < 10; k++) await null;
  }
}

test('tables: who goes without a word has left', async () => {
  for (const [how, seconds] of [['away', 15], ['taken', 15], ['failed', Infinity]]) {
    const { ann, ben, sent, away } = tablePair();
    const signal = new AbortController().signal;
    const [a, b] = await Promise.all([ann.sit('pong', signal), ben.sit('pong', signal)]);
    const heard = [];
    a.listen(() => {}, () => heard.push('left'));
    await pass(60);
    assert.deepEqual(heard, [], 'he answers');
    away.set('ben', 'away');
    await pass(5);
    away.delete('ben');
    await pass(5);
    away.set('ben', how);
    await pass(Math.min(seconds, 61) - 1);
    assert.deepEqual(heard, [], how);
    if (seconds === Infinity) continue;
    await pass(1);
    assert.deepEqual(heard, ['left'], how);
    assert.equal(sent.at(-1)[1].left, true, 'he is told, if he comes back');
    const n = sent.length;
    a.leave();
    await pass(20);
    assert.equal(sent.length, n, 'once');
    b.leave();
  }
});

test('tables: who has lost the relay, too, and comes back later, has not left', async () => {
  const { ann, ben, away } = tablePair();
  const signal = new AbortController().signal;
  const [a] = await Promise.all([ann.sit('pong', signal), ben.sit('pong', signal)]);
  const heard = [];
  a.listen(() => {}, () => heard.push('left'));
  let back;
  away.set('ben', new Promise((resolve) => (back = resolve)));
  await pass(24); // the first thing she asks waits for a connection
  back('away');
  away.set('ben', 'away');
  await pass(10);
  away.delete('ben');
  await pass(60);
  assert.deepEqual(heard, []);
  a.leave();
});

test('tables: what belongs to another table is passed over', async () => {
  const { ann, ben, sent } = tablePair();
  const signal = new AbortController().signal;
  const sit = () => Promise.all([ann.sit('pong', signal), ben.sit('pong', signal)]);
  const [a1, b1] = await sit();
  b1.send('old');
  const [, old] = sent.at(-1);
  a1.leave();
  b1.leave();
  const [a2] = await sit();
  const heard = [];
  a2.listen((d) => heard.push(d), () => heard.push('left'));
  ann.take('ben', old);
  ann.take('eve', { ...old, to: old.to });
  ann.take('ben', { ...old, left: true });
  assert.deepEqual(heard, []);
  ann.take('ben', { play: 'pong', from: 'new', to: '' }); // he plays anew
  assert.deepEqual(heard, ['left']);
});

test('tables: what is no message of a game is left for the talk', () => {
  const half = 'ab'.repeat(16);
  const hello = { play: 'pong', from: half, to: '' };
  const move = { ...hello, to: half, data: { at: 1 } };
  for (const v of [hello, move, { ...hello, to: half, left: true }, { ...hello, to: half, ask: true }, { ...hello, to: half }]) {
    assert.equal(isPlay(JSON.parse(JSON.stringify(v))), true, JSON.stringify(v));
  }
  for (const v of [
    null, 1, 'x', [], {}, { play: 1, from: '', to: '' }, { play: 'Hamlet', from: '7 pm', to: '10 pm' }, { ...move, play: 'chess' }, { ...move, from: 'x' },
    { ...move, to: 'x' }, { ...hello, data: 1 }, { ...hello, left: true }, { ...move, left: 1 }, { ...move, ask: 'x' }, { ...move, note: 'read me' },
  ]) assert.equal(isPlay(v), false, JSON.stringify(v));
});
