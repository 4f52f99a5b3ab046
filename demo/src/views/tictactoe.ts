import { button, h } from '../dom.js';
import { type Board, emptyBoard, isOver, type Mark, move, turn, winner } from '../games/tictactoe.js';
import type { PlayGame } from './games.js';

/** The board, whose squares are buttons. */
export const playTicTacToe: PlayGame = (table, say, over) => {
  const own: Mark = table.first ? 'X' : 'O';
  let board: Board = emptyBoard;
  let stopped = false;
  const squares = emptyBoard.map((_, i) => button('', () => choose(i), { class: 'square' }));
  const element = h('div', { class: 'board', role: 'group', 'aria-label': 'Board', keydown: (e: KeyboardEvent) => step(e) }, ...squares);

  const choose = (at: number): void => {
    if (stopped || turn(board) !== own) return;
    const next = move(board, at, own);
    if (next === undefined) return;
    board = next;
    table.send({ at });
    draw();
  };

  /** Arrow keys go from square to square. */
  const step = (e: KeyboardEvent): void => {
    const by = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -3, ArrowDown: 3 }[e.key];
    const at = squares.indexOf(document.activeElement as HTMLButtonElement);
    if (by === undefined || at < 0) return;
    e.preventDefault();
    squares[(at + by + 9) % 9]!.focus();
  };

  const draw = (): void => {
    const won = winner(board);
    squares.forEach((s, i) => {
      const mark = board[i];
      s.textContent = mark ?? '';
      s.dataset.mark = mark ?? '';
      s.classList.toggle('won', won?.line.includes(i) ?? false);
      s.setAttribute('aria-label', `row ${Math.floor(i / 3) + 1}, column ${(i % 3) + 1}: ${mark ?? 'empty'}`);
      s.setAttribute('aria-disabled', String(stopped || mark !== undefined || turn(board) !== own));
    });
    if (won !== undefined) return over(won.mark === own ? 'You have won.' : 'You have lost.');
    if (isOver(board)) return over('A draw.');
    say(turn(board) === own ? `You are ${own}. It is your turn.` : `You are ${own}. The other one is thinking …`);
  };

  table.listen((data) => {
    const next = move(board, (data as { at?: unknown } | null)?.at, own === 'X' ? 'O' : 'X');
    if (stopped) return;
    if (next === undefined) return over('The other one does not keep to the rules.');
    board = next;
    draw();
  }, () => over('The other one has left.'));
  draw();
  return {
    element,
    stop: () => {
      stopped = true;
      for (const s of squares) s.setAttribute('aria-disabled', 'true');
    },
  };
};
