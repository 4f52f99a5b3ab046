package main

import (
	"errors"
	"strings"
)

// A board has nine squares: 0, X or O. It is a value: a copy is another board.
type board [9]byte

// rows are what wins.
var rows = [...][3]int{
	{0, 1, 2}, {3, 4, 5}, {6, 7, 8},
	{0, 3, 6}, {1, 4, 7}, {2, 5, 8},
	{0, 4, 8}, {2, 4, 6},
}

func other(mark byte) byte { return 'X' + 'O' - mark }

// place puts a mark on a square. It checks, since an opponent may say anything.
func (b *board) place(at int, mark byte) error {
	if at < 0 || at >= len(b) || b[at] != 0 {
		return errors.New("that move is not possible")
	}
	b[at] = mark
	return nil
}

// winner returns the mark that has a row, or 0.
func (b *board) winner() byte {
	for _, r := range rows {
		if b[r[0]] != 0 && b[r[0]] == b[r[1]] && b[r[1]] == b[r[2]] {
			return b[r[0]]
		}
	}
	return 0
}

func (b *board) isFull() bool {
	for _, mark := range b {
		if mark == 0 {
			return false
		}
	}
	return true
}

// String draws the board: a digit is a square that is free.
func (b board) String() string {
	var s strings.Builder
	for i, mark := range b {
		if mark == 0 {
			mark = '1' + byte(i)
		}
		s.WriteByte(' ')
		s.WriteByte(mark)
		if i%3 == 2 {
			s.WriteByte('\n')
		}
	}
	return s.String()
}

// best returns the move of somebody who wins if he can, else does not let the other
// one win, and else likes the middle and the corners.
func best(b board, mark byte) (int, error) {
	for _, m := range []byte{mark, other(mark)} {
		for at := range b {
			try := b
			if try.place(at, m) == nil && try.winner() == m {
				return at, nil
			}
		}
	}
	for _, at := range [...]int{4, 0, 2, 6, 8, 1, 3, 5, 7} {
		if b[at] == 0 {
			return at, nil
		}
	}
	return 0, errors.New("the board is full")
}
