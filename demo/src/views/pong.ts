import { h } from '../dom.js';
import { advance, clampPaddle, field, newState, type Side, type State, step, toState, winner } from '../games/pong.js';
import type { PlayGame } from './games.js';

const tick = 1000 / 60; // ms
const mostTicks = 15; // at once, after a pause: the game waits for a page that was asleep
const sendEvery = 2; // turns
const paddleSpeed = 110; // units a second, by keyboard
const silence = 3000; // ms, after which the game waits for the other one

/**
 * The field. The player with the ball sends all of the state, time and again, the other
 * one the paddle: so a message that is lost is made good by the next. Only the end is
 * sent as something to be kept.
 */
export const playPong: PlayGame = (table, say, over) => {
  const side: Side = table.first ? 0 : 1;
  const state = newState();
  const keys = new Set<string>();
  let heard = Date.now();
  let last = performance.now();
  let turns = 0;
  let told = '';

  const canvas = h('canvas', { width: field.width * 4, height: field.height * 4, role: 'img', 'aria-label': 'The field of pong' });
  const element = h('div', {
    class: 'pong', tabindex: 0, role: 'application', 'aria-label': 'Pong: the arrow keys up and down move your paddle',
    keydown: (e: KeyboardEvent) => press(e, true), keyup: (e: KeyboardEvent) => press(e, false), blur: () => keys.clear(),
    pointerdown: (e: PointerEvent) => point(e), pointermove: (e: PointerEvent) => point(e),
  }, canvas);
  const press = (e: KeyboardEvent, down: boolean): void => {
    if (e.key !== 'ArrowUp' && e.key !== 'ArrowDown') return;
    e.preventDefault();
    if (down) keys.add(e.key);
    else keys.delete(e.key);
  };
  const point = (e: PointerEvent): void => {
    const box = canvas.getBoundingClientRect();
    state.paddles[side] = clampPaddle(((e.clientY - box.top) / box.height) * field.height);
  };

  const tell = (): void => {
    const [mine, theirs] = [state.score[side], state.score[1 - side]!];
    const won = winner(state);
    if (won !== undefined) return over(`${mine} to ${theirs}. ${won === side ? 'You have won.' : 'You have lost.'}`);
    const text = `${mine} to ${theirs}. You are on the ${side === 0 ? 'left' : 'right'}.` + (isAway() ? ' Waiting for the other one …' : '');
    if (text !== told) say((told = text));
  };
  const isAway = (): boolean => Date.now() - heard > silence;

  const run = (): void => {
    const ticks = Math.min(mostTicks, Math.floor((performance.now() - last) / tick));
    if (ticks === 0) return;
    last = ticks < mostTicks ? last + ticks * tick : performance.now();
    for (let n = 0; n < ticks; n++) pass();
    if (turns++ % sendEvery === 0) table.send(side === 0 ? { state } : { paddle: state.paddles[1] }, true);
    if (side === 0 && winner(state) !== undefined) table.send({ state }); // this one has to arrive
    tell();
    draw(canvas, state, side);
  };
  const pass = (): void => {
    const move = (keys.has('ArrowDown') ? 1 : 0) - (keys.has('ArrowUp') ? 1 : 0);
    state.paddles[side] = clampPaddle(state.paddles[side] + (move * paddleSpeed * tick) / 1000);
    if (!isAway()) (side === 0 ? step : advance)(state, tick / 1000);
  };
  const timer = setInterval(run, tick);

  table.listen((data) => {
    heard = Date.now();
    const d = data as { paddle?: unknown; state?: unknown } | null;
    if (side === 0) {
      if (Number.isFinite(d?.paddle)) state.paddles[1] = clampPaddle(d!.paddle as number);
      return;
    }
    const s = toState(d?.state);
    if (s === undefined) return;
    const own = state.paddles[1];
    Object.assign(state, s, { paddles: [s.paddles[0], own] });
    tell();
  }, () => over('The other one has left.'));
  draw(canvas, state, side);
  return { element, stop: () => clearInterval(timer) };
};

function draw(canvas: HTMLCanvasElement, s: State, side: Side): void {
  const c = canvas.getContext('2d')!;
  const style = getComputedStyle(canvas);
  const { width, height, paddle, edge, ball } = field;
  c.setTransform(canvas.width / width, 0, 0, canvas.height / height, 0, 0);
  c.clearRect(0, 0, width, height);
  c.fillStyle = style.getPropertyValue('--line');
  for (let y = 2; y < height; y += 8) c.fillRect(width / 2 - 0.5, y, 1, 4);
  c.font = '700 18px system-ui, sans-serif';
  c.textAlign = 'center';
  s.score.forEach((n, i) => c.fillText(String(n), width / 2 + (i === 0 ? -18 : 18), 20));
  s.paddles.forEach((y, i) => {
    c.fillStyle = style.getPropertyValue(i === side ? '--accent' : '--muted');
    c.fillRect(i === 0 ? edge - 2.5 : width - edge, y - paddle / 2, 2.5, paddle);
  });
  c.fillStyle = style.getPropertyValue('--text');
  c.beginPath();
  c.arc(s.x, s.y, ball, 0, 2 * Math.PI);
  c.fill();
}
