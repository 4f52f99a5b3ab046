import { button, h } from '../dom.js';
import { Match, picks } from '../games/rps.js';
import { icon } from '../icons.js';
import { messageOf } from '../text.js';
import type { PlayGame } from './games.js';

const withheld = 'The other one has not shown the choice. You have won.';

/** Three buttons, and what has happened in the rounds before. */
export const playRPS: PlayGame = (table, say, over) => {
  let stopped = false;
  const rounds = h('ol', { class: 'rounds', 'aria-label': 'Rounds' });
  const match = new Match({ table: table.id, self: table.self, peer: table.peer }, async (m) => (await table.send(m)) === 'taken', (mine, theirs, result) => {
    const how = result > 0 ? 'you win' : result < 0 ? 'you lose' : 'nobody wins';
    rounds.append(h('li', {}, `You ${mine}, the other ${theirs}: ${how}.`));
  }, () => {
    if (stopped) return;
    over(withheld);
    table.leave();
  });
  const draw = (): void => {
    const { mine, theirs } = match.score;
    const score = `${mine} to ${theirs}. `;
    for (const b of buttons) b.setAttribute('aria-disabled', String(stopped || match.hasChosen || match.isOver));
    if (match.isOver) return over(score + (mine > theirs ? 'You have won.' : 'You have lost.'));
    if (match.hasChosen) say(`${score}Your choice is sealed. Waiting for the other one …`);
    else say(score + (match.isAwaited ? 'The other one has chosen. Choose!' : 'Choose!'));
  };
  const buttons = picks.map((pick) => button('', async () => {
    if (stopped || match.hasChosen) return;
    const chosen = match.choose(pick);
    buttons.forEach((b) => b.setAttribute('aria-pressed', String(b === buttons[picks.indexOf(pick)])));
    draw();
    await chosen;
  }, { class: 'pick', 'aria-pressed': 'false' }));
  buttons.forEach((b, i) => b.append(icon(picks[i]!), picks[i]!));

  let turn = Promise.resolve(); // what the other sends is taken in order
  table.listen((data) => {
    turn = turn.then(async () => {
      if (stopped) return;
      const { round } = match;
      await match.take(data);
      if (match.round !== round) for (const b of buttons) b.setAttribute('aria-pressed', 'false');
      draw();
    }).catch((err: unknown) => over(`The other one does not keep to the rules: ${messageOf(err)}.`));
  }, () => (turn = turn.then(() => over(match.hasShown ? withheld : 'The other one has left.'))));
  draw();
  return {
    element: h('div', { class: 'stack' }, h('div', { class: 'picks', role: 'group', 'aria-label': 'Your choice' }, ...buttons), rounds),
    stop: () => {
      stopped = true;
      for (const b of buttons) b.setAttribute('aria-disabled', 'true');
    },
  };
};
