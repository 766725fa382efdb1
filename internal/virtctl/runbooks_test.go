package virtctl

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"drydock.dev/drydock/internal/virtctl/env"
)

// TestTheCommandsOfRunbooksExist looks at commands and flags: a reader on call copies them.
func TestTheCommandsOfRunbooksExist(t *testing.T) {
	pages, err := filepath.Glob("../../docs/runbooks/*.md")
	if err != nil {
		t.Fatal(err)
	}
	command, found := regexp.MustCompile("(?m)(?:^|`)virtctl ([^`\n]+)"), 0
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, match := range command.FindAllStringSubmatch(string(text), -1) {
			found++
			e := env.FromOS()
			e.Program = "virtctl"
			root := New(e)
			called, rest, err := root.Find(strings.Fields(match[1]))
			if err != nil || called == root || !called.Runnable() {
				t.Errorf("%s: virtctl %s: there is no such command (%v)", filepath.Base(page), match[1], err)
				continue
			}
			if err := called.ParseFlags(rest); err != nil {
				t.Errorf("%s: virtctl %s: %v", filepath.Base(page), match[1], err)
			} else if err := called.ValidateArgs(called.Flags().Args()); err != nil {
				t.Errorf("%s: virtctl %s: %v", filepath.Base(page), match[1], err)
			}
		}
	}
	if found < 10 {
		t.Errorf("only %d commands found: the test looks in the wrong place", found)
	}
}
