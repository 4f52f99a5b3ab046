// The physics of pong. One player's page has the ball, and tells the other where it is.

export const field = { width: 160, height: 100, paddle: 22, edge: 6, ball: 2 };
export const pointsToWin = 3;

const pause = 1; // before a serve, s
const startSpeed = 70; // units a second
const faster = 1.06; // with each return
const mostSpeed = 160;

export type Side = 0 | 1; // left has the ball, right is told

export interface State {
  x: number;
  y: number;
  vx: number;
  vy: number;
  paddles: [number, number]; // their centres
  score: [number, number];
  wait: number; // until the serve, s
}

/** The ball goes to the right first. */
export function newState(): State {
  return { ...serve(1), paddles: [field.height / 2, field.height / 2], score: [0, 0] };
}

function serve(to: 1 | -1): Pick<State, 'x' | 'y' | 'vx' | 'vy' | 'wait'> {
  const angle = (Math.random() - 0.5) * 0.9;
  return {
    x: field.width / 2, y: field.height / 2,
    vx: to * startSpeed * Math.cos(angle), vy: startSpeed * Math.sin(angle), wait: pause,
  };
}

/** Keeps a paddle in the field. */
export function clampPaddle(y: number): number {
  const half = field.paddle / 2;
  return Math.min(field.height - half, Math.max(half, y));
}

export function winner(s: State): Side | undefined {
  if (s.score[0] >= pointsToWin) return 0;
  return s.score[1] >= pointsToWin ? 1 : undefined;
}

/** Lets dt seconds pass. */
export function step(s: State, dt: number): void {
  advance(s, dt);
  if (s.x < 0) point(s, 1);
  else if (s.x > field.width) point(s, 0);
}

/** Lets dt seconds pass, but gives no points: that is for the one who has the ball. */
export function advance(s: State, dt: number): void {
  if (winner(s) !== undefined) return;
  if (s.wait > 0) {
    s.wait -= dt;
    return;
  }
  s.x += s.vx * dt;
  s.y += s.vy * dt;
  const { width, height, ball, edge } = field;
  if (s.y < ball || s.y > height - ball) {
    s.vy = s.y < ball ? Math.abs(s.vy) : -Math.abs(s.vy);
    s.y = Math.min(height - ball, Math.max(ball, s.y));
  }
  if (s.vx < 0 && s.x <= edge + ball && s.x > edge - ball) bounce(s, 0);
  if (s.vx > 0 && s.x >= width - edge - ball && s.x < width - edge + ball) bounce(s, 1);
}

/** The further from the middle of the paddle the ball is taken, the steeper it leaves. */
function bounce(s: State, side: Side): void {
  const off = (s.y - s.paddles[side]) / (field.paddle / 2);
  if (Math.abs(off) > 1 + field.ball / field.paddle) return;
  const speed = Math.min(mostSpeed, Math.hypot(s.vx, s.vy) * faster);
  const angle = off * 0.9;
  s.vx = (side === 0 ? 1 : -1) * speed * Math.cos(angle);
  s.vy = speed * Math.sin(angle);
}

function point(s: State, side: Side): void {
  s.score[side]++;
  Object.assign(s, serve(side === 0 ? 1 : -1));
}

/** Reads a state that came in a message; undefined if it is none. */
export function toState(v: unknown): State | undefined {
  const s = v as State | null;
  if (typeof s !== 'object' || s === null) return undefined;
  const ok = [s.x, s.y, s.vx, s.vy, s.wait].every(Number.isFinite) && isPair(s.paddles) && isPair(s.score);
  return ok ? s : undefined;
}

function isPair(v: unknown): v is [number, number] {
  return Array.isArray(v) && v.length === 2 && v.every(Number.isFinite);
}
