package pipe

// framer finds where the JSON values of a stream end, a byte at a time. It checks as much as is needed for not taking a wrong byte for the
// end of a value: the brackets, and what may stand where between them. What it lets through may still be no JSON (a word in the place of a
// number), but then it is known where the next value begins.
type framer struct {
	open    []byte // the brackets that are open
	next    want
	text    bool // within a string
	escaped bool // after a backslash in it
	word    bool // within a number, true, false or null
}

// want is the token that may come next within brackets.
type want int

const (
	wantFirstKey want = iota // or the end of an object
	wantKey
	wantColon
	wantFirstValue // or the end of an array
	wantValue
	wantComma // or the end of either
)

// frame is the meaning of a byte for the current value.
type frame int

const (
	frameNothing frame = iota // no value has started
	frameInside
	frameEnd    // of the value, with this byte
	frameBroken // no JSON: where the next value begins is unknown
)

// MaxDepth is how deep brackets may be nested.
const MaxDepth = 1000

// step takes the next byte. After frameBroken use a new framer.
func (f *framer) step(c byte) frame {
	if f.text {
		return f.inText(c)
	}
	if f.word && isWord(c) {
		return frameInside
	}
	f.word = false
	switch c {
	case ' ', '\t', '\r', '\n':
	case '{', '[':
		return f.begin(c)
	case '}', ']':
		return f.end(c)
	case '"':
		return f.quote()
	case ':':
		return f.follow(f.next == wantColon, wantValue)
	case ',':
		if f.inObject() {
			return f.follow(f.next == wantComma, wantKey)
		}
		return f.follow(f.next == wantComma, wantValue)
	default:
		f.word = isWord(c)
		return f.follow(f.word && f.takesValue(), wantComma)
	}
	if len(f.open) == 0 {
		return frameNothing
	}
	return frameInside
}

func (f *framer) inText(c byte) frame {
	switch {
	case c < ' ':
		return frameBroken // no line break, so that a quote that is missing is noticed
	case f.escaped:
		f.escaped = false
	case c == '\\':
		f.escaped = true
	case c == '"':
		f.text = false
	}
	return frameInside
}

func (f *framer) quote() frame {
	f.text = true
	if f.next == wantFirstKey || f.next == wantKey {
		return f.follow(true, wantColon)
	}
	return f.follow(f.takesValue(), wantComma)
}

func (f *framer) begin(bracket byte) frame {
	if len(f.open) > 0 && !f.takesValue() || len(f.open) == MaxDepth {
		return frameBroken
	}
	f.open = append(f.open, bracket)
	f.next = wantFirstValue
	if bracket == '{' {
		f.next = wantFirstKey
	}
	return frameInside
}

func (f *framer) end(bracket byte) frame {
	first := wantFirstValue
	if f.inObject() {
		first = wantFirstKey
	}
	if len(f.open) == 0 || (bracket == '}') != f.inObject() || f.next != first && f.next != wantComma {
		return frameBroken
	}
	f.open = f.open[:len(f.open)-1]
	f.next = wantComma
	if len(f.open) == 0 {
		return frameEnd
	}
	return frameInside
}

// follow sets the next wanted token, if this one was in its place within brackets.
func (f *framer) follow(ok bool, next want) frame {
	if !ok || len(f.open) == 0 {
		return frameBroken
	}
	f.next = next
	return frameInside
}

func (f *framer) takesValue() bool { return f.next == wantFirstValue || f.next == wantValue }

func (f *framer) inObject() bool { return len(f.open) > 0 && f.open[len(f.open)-1] == '{' }

// isWord reports whether a byte may be part of a number, true, false or null.
func isWord(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '+' || c == '-' || c == '.'
}
