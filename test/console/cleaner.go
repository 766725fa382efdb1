package console

// cleaner drops what a terminal would not show as text: carriage returns, zero
// bytes and escape sequences, also those that come in pieces.
type cleaner struct {
	state escape
}

// escape is how much of an escape sequence was read.
type escape int

const (
	plain     escape = iota
	begun            // ESC
	parameter        // ESC [
	charset          // ESC ( and its like, one more byte to come
)

const esc = 0x1b

// append adds what is text of piece to text.
func (c *cleaner) append(text, piece []byte) []byte {
	for _, b := range piece {
		switch c.state {
		case begun:
			c.state = afterEscape(b)
		case parameter:
			if b >= 0x40 && b <= 0x7e { // the letter that ends it
				c.state = plain
			}
		case charset:
			c.state = plain
		default:
			switch b {
			case esc:
				c.state = begun
			case '\r', 0:
			default:
				text = append(text, b)
			}
		}
	}
	return text
}

func afterEscape(b byte) escape {
	switch b {
	case '[':
		return parameter
	case '(', ')', '#':
		return charset
	default:
		return plain
	}
}
