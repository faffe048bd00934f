package mysql

import "strings"

// script is a number of statements that go to the database in one packet.
type script struct {
	text strings.Builder
	args []any
}

func (s *script) add(statement string, args ...any) {
	if !s.empty() {
		s.text.WriteString("; ")
	}
	s.text.WriteString(statement)
	s.args = append(s.args, args...)
}

func (s *script) empty() bool { return s.text.Len() == 0 }

// take returns the statements and forgets them.
func (s *script) take() (text string, args []any) {
	text, args = s.text.String(), s.args
	*s = script{}
	return text, args
}
