package console

// cleaner removes carriage returns, zero bytes and escape sequences, even if a sequence is split
// between reads.
type cleaner struct {
	state escape
}

type escape int

const (
	plain     escape = iota
	begun            // ESC
	parameter        // ESC [
	charset          // ESC ( and similar, with one more byte to come
)

const esc = 0x1b

func (c *cleaner) append(text, piece []byte) []byte {
	for _, b := range piece {
		switch c.state {
		case begun:
			c.state = afterEscape(b)
		case parameter:
			if b >= 0x40 && b <= 0x7e { // final byte
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
