//go:build system

package system

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

var subcommand = regexp.MustCompile(`(?m)^  ([a-z]+) +\S`)

func helpOf(c *cluster, command []string, into map[string]string) {
	help := c.drydock(append(command, "--help")...)
	into[strings.Join(command, " ")] = help
	_, list, _ := strings.Cut(help, "Available Commands:\n")
	list, _, _ = strings.Cut(list, "\n\n")
	for _, match := range subcommand.FindAllStringSubmatch(list, -1) {
		// kubectl has its own help, and help is cobra's own.
		if name := match[1]; name != "kubectl" && name != "help" && name != "completion" {
			helpOf(c, append(command[:len(command):len(command)], name), into)
		}
	}
}

// TestHelpShowsDrydocksFlagsOnly needs no cluster.
func TestHelpShowsDrydocksFlagsOnly(t *testing.T) {
	c := newCluster(t, "none")
	helps := map[string]string{}
	helpOf(c, nil, helps)
	for _, command := range []string{"", "run", "up", "deploy", "image load", "node kill"} {
		if helps[command] == "" {
			t.Errorf("drydock %s was not found by way of the help", command)
		}
	}
	for command, help := range helps {
		if strings.Contains(help, "vX.Y.Z") || command != "" && strings.Contains(help, "--version") {
			t.Errorf("drydock %s shows a flag of Kubernetes:\n%s", command, help)
		}
	}
	if _, err := c.try("status", "--version=v1.99.0"); err == nil || !strings.Contains(err.Error(), "unknown flag: --version") {
		t.Errorf("a flag of Kubernetes is taken: %v", err)
	}
	if out := c.drydock("kubectl", "kustomize", "--help"); !strings.Contains(out, "--enable-helm") {
		t.Errorf("kubectl lost its own flags: %s", out)
	}
	removeFolder(t, c)
}

// No command may have used the data folder.
func removeFolder(t *testing.T, c *cluster) {
	t.Helper()
	if err := os.Remove(c.Dir); err != nil {
		t.Errorf("the data folder was used: %v", err)
	}
}

// TestVersionsAreThoseOfDrydockAndKubernetes needs no cluster.
func TestVersionsAreThoseOfDrydockAndKubernetes(t *testing.T) {
	c := newCluster(t, "none")
	want := regexp.MustCompile(`^Drydock v\d+\.\d+\.\d+\S*\nKubernetes v1\.\d+\.\d+\n$`)
	for _, command := range []string{"version", "--version"} {
		if out := c.drydock(command); !want.MatchString(out) {
			t.Errorf("drydock %s prints %q", command, out)
		}
	}
	removeFolder(t, c)
}
