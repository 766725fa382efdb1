// Package console types at a guest's serial console and reads the output, despite echo, prompts, escape
// sequences, interleaved kernel messages, and a session that an earlier test left.
//
// It must not know how the console is reached.
package console

import (
	"context"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Console is one terminal. It must not be used concurrently.
type Console struct {
	terminal io.ReadWriter

	mu sync.Mutex
	// all is the cleaned output, seen is its length up to Expect's last match.
	all  []byte
	seen int
	// more is closed and replaced after each read.
	more chan struct{}
	err  error

	commands int
}

// New reads until the terminal ends. The caller closes it.
func New(terminal io.ReadWriter) *Console {
	c := &Console{terminal: terminal, more: make(chan struct{})}
	go c.read()
	return c
}

func (c *Console) read() {
	var clean cleaner
	buffer := make([]byte, 4096)
	for {
		n, err := c.terminal.Read(buffer)
		c.mu.Lock()
		c.all = clean.append(c.all, buffer[:n])
		c.err = err
		close(c.more)
		c.more = make(chan struct{})
		c.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// Transcript returns the whole output.
func (c *Console) Transcript() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return string(c.all)
}

// Send types text. A line must end with a newline.
func (c *Console) Send(text string) error {
	if _, err := io.WriteString(c.terminal, strings.ReplaceAll(text, "\n", "\r")); err != nil {
		return fmt.Errorf("typing at the console: %w", err)
	}
	return nil
}

// Expect waits for output that matches, and returns the match and its groups. It skips the output before the
// match; the next call starts behind it. Lines end with \n alone.
func (c *Console) Expect(ctx context.Context, pattern *regexp.Regexp) ([]string, error) {
	for {
		match, more, err := c.look(pattern)
		if match != nil || err != nil {
			return match, err
		}
		select {
		case <-more:
		case <-ctx.Done():
			return nil, fmt.Errorf("waiting for %q on the console: %w; it shows %q", pattern, ctx.Err(), c.tail())
		}
	}
}

func (c *Console) look(pattern *regexp.Regexp) ([]string, <-chan struct{}, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	rest := c.all[c.seen:]
	if at := pattern.FindSubmatchIndex(rest); at != nil {
		var groups []string
		for i := 0; i < len(at); i += 2 {
			group := ""
			if at[i] >= 0 {
				group = string(rest[at[i]:at[i+1]])
			}
			groups = append(groups, group)
		}
		c.seen += at[1]
		return groups, nil, nil
	}
	if c.err != nil {
		return nil, nil, fmt.Errorf("waiting for %q on the console, which ended: %w; it showed %q", pattern, c.err, tailOf(c.all))
	}
	return nil, c.more, nil
}

func (c *Console) tail() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return tailOf(c.all)
}

func tailOf(text []byte) string {
	const enough = 600
	return string(text[max(0, len(text)-enough):])
}

// prompt is our sessions' prompt, which does not occur in output. A session of an earlier test shows it again
// after Enter.
const prompt = "drydock-console> "

var (
	anyPrompt   = regexp.MustCompile(`(login: |Password: |[#$] |` + prompt + `)$`)
	loggedIn    = regexp.MustCompile(`(Login incorrect|[#$] $)`)
	password    = regexp.MustCompile(`Password: $`)
	loginPrompt = regexp.MustCompile(`login: $`)
)

// knock is the interval of pressing Enter: a guest that is booting loses input.
const knock = time.Second

// Login logs in as root with the test guest's password.
func (c *Console) Login(ctx context.Context) error {
	return c.LoginAs(ctx, "root", "root")
}

// LoginAs waits for a login prompt and logs in. It takes over an existing session of any user.
func (c *Console) LoginAs(ctx context.Context, user, secret string) error {
	for {
		shown, err := c.knock(ctx)
		if err != nil {
			return fmt.Errorf("waiting for a login prompt: %w", err)
		}
		switch shown {
		case "login: ":
			entered, err := c.enter(ctx, user, secret)
			if err != nil {
				return fmt.Errorf("logging in as %s: %w", user, err)
			}
			if entered {
				return c.settle(ctx)
			}
		case "Password: ":
			// An abandoned login. Enter brings the login prompt back.
			continue
		default:
			return c.settle(ctx)
		}
	}
}

// Logout waits for the next login prompt, so that an older one is not mistaken for it.
func (c *Console) Logout(ctx context.Context) error {
	if err := c.Send("exit\n"); err != nil {
		return fmt.Errorf("logging out: %w", err)
	}
	if _, err := c.Expect(ctx, loginPrompt); err != nil {
		return fmt.Errorf("logging out: %w", err)
	}
	return nil
}

func (c *Console) knock(ctx context.Context) (string, error) {
	for {
		if err := c.Send("\n"); err != nil {
			return "", err
		}
		patience, cancel := context.WithTimeout(ctx, knock)
		match, err := c.Expect(patience, anyPrompt)
		expired := patience.Err() != nil
		cancel()
		if match != nil {
			return match[1], nil
		}
		if ctx.Err() != nil || !expired {
			return "", err
		}
	}
}

// A refused password is an error.
func (c *Console) enter(ctx context.Context, user, secret string) (bool, error) {
	if err := c.Send(user + "\n"); err != nil {
		return false, err
	}
	if _, err := c.Expect(ctx, password); err != nil {
		return false, err
	}
	if err := c.Send(secret + "\n"); err != nil {
		return false, err
	}
	match, err := c.Expect(ctx, loggedIn)
	if err != nil {
		return false, err
	}
	if match[1] == "Login incorrect" {
		return false, fmt.Errorf("the guest refuses the password")
	}
	return true, nil
}

// settle turns echo off, which also disables line editing with escape sequences, and sets our prompt.
func (c *Console) settle(ctx context.Context) error {
	if err := c.Send("stty -echo; PS1='" + prompt + "'\n"); err != nil {
		return err
	}
	_, _, err := c.Run(ctx, "true")
	return err
}

// maxLine is the maximum length of a terminal's input line.
const maxLine = 4000

// Run runs shell commands, possibly on several lines, and returns their output and the last exit status. They
// get no input. The shell keeps its working folder and variables between calls.
func (c *Console) Run(ctx context.Context, commands string) (output string, status int, err error) {
	c.commands++
	// The quotes keep an echo of the input from matching the marks.
	number := strconv.Itoa(c.commands)
	text := "{ echo '<<''<" + number + "'\n" + commands + "\n} </dev/null; echo '>>''>" + number + "' $?\n"
	for line := range strings.SplitSeq(text, "\n") {
		if len(line) > maxLine {
			return "", 0, fmt.Errorf("running a command on the console: a line has %d bytes, a terminal takes %d", len(line), maxLine)
		}
	}
	if err := c.Send(text); err != nil {
		return "", 0, err
	}
	match, err := c.Expect(ctx, regexp.MustCompile(`(?s)<<<`+number+`\n(.*?)>>>`+number+` (\d+)\n`))
	if err != nil {
		return "", 0, fmt.Errorf("running %q on the console: %w", commands, err)
	}
	status, err = strconv.Atoi(match[2])
	if err != nil {
		return "", 0, fmt.Errorf("reading the exit status of %q: %w", commands, err)
	}
	return strings.TrimRight(match[1], "\n"), status, nil
}
