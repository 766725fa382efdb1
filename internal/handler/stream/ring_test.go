package stream

import (
	"bytes"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"drydock.dev/drydock/internal/propertytest"
)

// A reader that starts anywhere must see the output's own bytes in order, and its missed bytes be counted.
func TestRingProperty(t *testing.T) {
	propertytest.Check(t, func(t *rapid.T) {
		r := ring{changed: make(chan struct{})}
		var all []byte
		var position int64
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			if rapid.Bool().Draw(t, "write") {
				piece := make([]byte, rapid.IntRange(0, 3*ringSize/2).Draw(t, "length"))
				for i := range piece {
					piece[i] = byte((len(all) + i) % 251)
				}
				r.write(piece)
				all = append(all, piece...)
				continue
			}
			buffer := make([]byte, rapid.IntRange(1, 2*ringSize).Draw(t, "buffer"))
			n, skipped, _ := r.read(buffer, position)
			if missing := int64(len(all)) - position; skipped > 0 && skipped != missing-ringSize {
				t.Fatalf("skipped %d of %d missing bytes, while %d are held", skipped, missing, ringSize)
			}
			position += skipped
			if !bytes.Equal(buffer[:n], all[position:position+int64(n)]) {
				t.Fatalf("read other bytes at %d than were written", position)
			}
			if n == 0 && position != int64(len(all)) {
				t.Fatalf("read nothing at %d of %d", position, len(all))
			}
			position += int64(n)
		}
	})
}

func TestScreen(t *testing.T) {
	lines := func(n int) string {
		var b strings.Builder
		for i := range n {
			b.WriteString(strings.Repeat("z", i%10) + "\n")
		}
		return b.String()
	}
	for name, c := range map[string]struct{ output, want string }{
		"nothing":                   {"", ""},
		"less than a screen":        {"a\r\nb", "a\r\nb"},
		"a screen at most":          {lines(100) + "$ ", lines(100)[strings.LastIndex(lines(77), "\n")+1:] + "$ "},
		"colors stay":               {"\x1b[1;31mred\x1b[m", "\x1b[1;31mred\x1b[m"},
		"queries go":                {"a\x1b[6nb\x1b[cc\x1b[18td\x1bZe", "abcde"},
		"movements go":              {"a\x1b[2J\x1b[1;1Hb\x1b7c\x1b(Bd", "abcd"},
		"titles go":                 {"a\x1b]0;title\x07b\x1b]0;title\x1b\\c\x1bP+q\x1b\\d", "abcd"},
		"unfinished":                {"a\x1b[12", "a"},
		"only the beginning of one": {"a\x1b", "a"},
	} {
		r := ring{changed: make(chan struct{})}
		r.write([]byte(c.output))
		got, position := r.screen()
		if string(got) != c.want || position != int64(len(c.output)) {
			t.Errorf("%s: a new viewer sees %q and goes on at %d", name, got, position)
		}
	}
}

func TestScreenBeginsWithAWholeLine(t *testing.T) {
	r := ring{changed: make(chan struct{})}
	r.write([]byte(strings.Repeat("long ", screenBytes)))
	r.write([]byte("\nend"))
	if got, _ := r.screen(); string(got) != "end" {
		t.Errorf("a new viewer sees %q", got)
	}
}

func FuzzInert(f *testing.F) {
	f.Add([]byte("a\x1b[6nb\x1b]0;t\x07c"))
	f.Fuzz(func(t *testing.T, text []byte) {
		out := withoutEscapes(text)
		if again := withoutEscapes(out); !bytes.Equal(again, out) {
			t.Errorf("%q became %q, and that %q", text, out, again)
		}
	})
}
