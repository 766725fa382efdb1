package consolelog

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"
)

var start = time.Unix(1_700_000_000, 0)

func logged(output string) string {
	l := New(start)
	l.Write([]byte(output), start)
	return string(l.Pending())
}

func TestTheTextOfAConsoleIsHarmlessToATerminal(t *testing.T) {
	for name, c := range map[string]struct{ output, want string }{
		"lines":                      {"Linux version 6.1\r\nlogin: ", "Linux version 6.1\nlogin: "},
		"colors":                     {"[\x1b[0;32m  OK  \x1b[0m] Started\n", "[  OK  ] Started\n"},
		"a title":                    {"a\x1b]0;owned\x07b", "ab"},
		"a title with a terminator":  {"a\x1b]0;owned\x1b\\b", "ab"},
		"a query":                    {"a\x1b[6n\x1bZb\x1bP+q\x1b\\c", "abc"},
		"a charset":                  {"a\x1b(Bb", "ab"},
		"a sequence that never ends": {"a\x1b]" + strings.Repeat("x", 300) + "b", "a" + strings.Repeat("x", 45) + "b"},
		"a sequence of the line":     {"a\x1b]0;x\nb", "a\nb"},
		"an eight-bit sequence":      {"a\u009b31mb", "a31mb"},
		"control characters":         {"a\x00\x08\x7f\x07b\tc", "ab\tc"},
		"a line that is overwritten": {"rm -rf /\rls -l    \r\n", "rm -rf /\nls -l    \n"},
		"other languages":            {"größer 日本\n", "größer 日本\n"},
		"no UTF-8":                   {"a\xffb\xe6\x97c\n", "a\ufffdb\ufffdc\n"},
	} {
		if got := logged(c.output); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
		// The output may come in any pieces.
		l := New(start)
		for _, b := range []byte(c.output) {
			l.Write([]byte{b}, start)
		}
		if got := string(l.Pending()); got != c.want {
			t.Errorf("%s, byte by byte: %q, want %q", name, got, c.want)
		}
	}
}

func TestNothingActsOnATerminal(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	alphabet := []byte("ab1;?[]\\PX^_(\x1b\x1b\x1b\x07\r\n\x00\x9b\xc2\xe2\x80\xff")
	for range 2000 {
		var output []byte
		for range random.IntN(60) {
			output = append(output, alphabet[random.IntN(len(alphabet))])
		}
		got := logged(string(output))
		if i := strings.IndexFunc(got, func(r rune) bool { return unicode.IsControl(r) && r != '\n' && r != '\t' }); i >= 0 || !utf8.ValidString(got) {
			t.Fatalf("%q becomes %q", output, got)
		}
	}
}

var missing = regexp.MustCompile(`\[virt-launcher: (\d+) bytes of the console are missing here: a guest may log 32 KiB a second\]\n`)

// flood writes lines for a while, and returns the log, the bytes of the guest that it says are missing, and the
// bytes of the guest.
func flood(l *Log, line string, rate int, lasts time.Duration) (got []byte, lost, sent int) {
	const tick = 10 * time.Millisecond
	for now := start; now.Before(start.Add(lasts)); now = now.Add(tick) {
		output := bytes.Repeat([]byte(line), rate/100/len(line)+1)
		l.Write(output, now)
		sent += len(output)
		got = append(got, l.Pending()...)
		l.Written(len(l.Pending()))
	}
	l.End()
	got = append(got, l.Pending()...)
	for _, m := range missing.FindAllSubmatch(got, -1) {
		var n int
		_, _ = fmt.Sscan(string(m[1]), &n)
		lost += n
	}
	return got, lost, sent
}

func TestAFloodIsBoundedAndWhatIsMissingIsSaid(t *testing.T) {
	for name, line := range map[string]string{"lines": strings.Repeat("x", 99) + "\n", "empty lines": "\n", "no lines": "x"} {
		const lasts = 20 * time.Second
		got, lost, sent := flood(New(start), line, 1<<20, lasts)
		cost := len(got) + lineCost*bytes.Count(got, []byte("\n"))
		// A notice is not paid for, and there is at most one for each resumption.
		if most := Burst + int(lasts.Seconds())*Rate + 256*int(lasts.Seconds()); cost > most {
			t.Errorf("%s: %d bytes are logged, more than %d", name, cost, most)
		}
		said := missing.ReplaceAllString(string(got), "")
		if kept := strings.Count(said, "x") + strings.Count(line, "\n")*strings.Count(said, "\n"); lost+kept < sent-sent/1000 || lost > sent {
			t.Errorf("%s: %d bytes were sent, %d are logged, and %d are said to be missing", name, sent, kept, lost)
		}
	}
}

func TestAQuietGuestLosesNothing(t *testing.T) {
	got, lost, sent := flood(New(start), strings.Repeat("x", 99)+"\n", 10<<10, time.Minute)
	if lost != 0 || len(got) != sent {
		t.Errorf("of %d bytes %d are logged, and %d missing", sent, len(got), lost)
	}
}

func TestASlowReaderCostsBoundedMemory(t *testing.T) {
	l := New(start)
	for i := range 100 {
		l.Write(bytes.Repeat([]byte("x"), 64<<10), start.Add(time.Duration(i)*time.Second))
	}
	if n := len(l.Pending()); n > maxPending+4 {
		t.Errorf("%d bytes wait", n)
	}
	l.Written(len(l.Pending()))
	l.Write([]byte("y"), start.Add(time.Hour))
	if got := string(l.Pending()); !strings.HasSuffix(got, "a second]\ny") || !missing.MatchString(got) {
		t.Errorf("%q", got)
	}
	l.Written(len(l.Pending()))
	if cap(l.pending) > maxPending/4 {
		t.Errorf("an idle guest keeps %d bytes", cap(l.pending))
	}
}

func TestTheEndOfALogIsALine(t *testing.T) {
	l := New(start)
	l.End()
	if len(l.Pending()) != 0 {
		t.Errorf("without output: %q", l.Pending())
	}
	l.Write([]byte("reboot: Power down"), start)
	l.Written(len(l.Pending()))
	if l.End(); string(l.Pending()) != "\n" {
		t.Errorf("%q", l.Pending())
	}
}
