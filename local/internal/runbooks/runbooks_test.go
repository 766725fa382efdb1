package runbooks

import (
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/util/jsonpath"
	"k8s.io/kubectl/pkg/cmd"
)

// words splits a command as a shell does, up to the end of the first program.
func words(line string) []string {
	var all []string
	for _, word := range regexp.MustCompile(`'[^']*'|\||(?:[^\s'|]|'[^']*')+`).FindAllString(line, -1) {
		if word == "|" {
			break
		}
		all = append(all, strings.ReplaceAll(word, "'", ""))
	}
	return all
}

func TestWordsAreThoseOfAShell(t *testing.T) {
	got := words(`get secret S -o jsonpath='{.data.tls\.crt} x' | base64 -d`)
	if want := []string{"get", "secret", "S", "-o", `jsonpath={.data.tls\.crt} x`}; strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("the words are %q, want %q", got, want)
	}
}

func TestTheCommandsOfRunbooksExist(t *testing.T) {
	pages, err := filepath.Glob("../../../docs/runbooks/*.md")
	if err != nil {
		t.Fatal(err)
	}
	command, found := regexp.MustCompile("(?m)(?:^ *|`)kubectl ([^`\n]+)"), 0
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, match := range command.FindAllStringSubmatch(string(text), -1) {
			found++
			if err := check(words(match[1])); err != "" {
				t.Errorf("%s: kubectl %s: %s", filepath.Base(page), match[1], err)
			}
		}
	}
	if found < 50 {
		t.Errorf("only %d commands found: the test looks in the wrong place", found)
	}
}

// check returns a command's fault, "" for none.
func check(args []string) string {
	root := cmd.NewKubectlCommand(cmd.KubectlOptions{
		ConfigFlags: genericclioptions.NewConfigFlags(true), IOStreams: genericiooptions.IOStreams{In: strings.NewReader(""), Out: io.Discard, ErrOut: io.Discard},
	})
	called, rest, err := root.Find(args)
	if err != nil || called == root || !called.Runnable() {
		return "there is no such command"
	}
	if called.HasSubCommands() && (len(rest) == 0 || !strings.HasPrefix(rest[0], "-")) {
		return "the command within " + called.Name() + " is missing or does not exist"
	}
	if err := called.ParseFlags(rest); err != nil {
		return err.Error()
	}
	if output := called.Flags().Lookup("output"); output != nil {
		if template, is := strings.CutPrefix(output.Value.String(), "jsonpath="); is {
			if err := jsonpath.New("").Parse(template); err != nil {
				return err.Error()
			}
		}
	}
	return ""
}

func TestTheCheckFindsWhatDoesNotExist(t *testing.T) {
	for _, line := range []string{"got pods", "get pods --namspace x", "get pods -o jsonpath='{.items[}'", "rollout", "rollout restarted daemonset/x"} {
		if check(words(line)) == "" {
			t.Errorf("kubectl %s is taken for a command", line)
		}
	}
}
