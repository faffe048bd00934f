package pipe

import (
	"bufio"
	"errors"
	"fmt"
	"io"
)

// MaxMessage bounds a request. The largest that a server takes has 64 KiB of user data, which
// may be written with six characters for each byte.
const MaxMessage = 1 << 20

var (
	errNotJSON = errors.New("not a JSON object; what follows is skipped up to the next line break")
	errTooLong = fmt.Errorf("a message must not have more than %d bytes", MaxMessage)
)

// input is a stream of JSON objects, with or without anything between them.
type input struct {
	r        *bufio.Reader
	skipping bool // up to the next line break
}

func newInput(r io.Reader) *input { return &input{r: bufio.NewReaderSize(r, 64<<10)} }

// next returns the next object, or array, which is balanced and may be wrong inside. With errNotJSON and errTooLong it returns the
// beginning of the message; then the stream goes on. Any other error is its end.
func (in *input) next() (message []byte, err error) {
	if err := in.skip(); err != nil {
		return nil, err
	}
	var f framer
	for {
		c, err := in.r.ReadByte()
		if err != nil {
			return nil, in.over(err, len(message) > 0)
		}
		at := f.step(c)
		if at != frameNothing && len(message) <= MaxMessage {
			message = append(message, c)
		}
		switch {
		case at == frameBroken:
			in.skipping = c != '\n'
			return message, errNotJSON
		case at == frameEnd && len(message) > MaxMessage:
			return message, errTooLong
		case at == frameEnd:
			return message, nil
		}
	}
}

// over returns the error at the end of the stream.
func (in *input) over(err error, inside bool) error {
	if inside && errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// skip goes on to the next line, after a broken message.
func (in *input) skip() error {
	for in.skipping {
		_, err := in.r.ReadSlice('\n')
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return err
		}
		in.skipping = err != nil
	}
	return nil
}
