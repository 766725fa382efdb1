package ssh

import (
	"os/exec"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"drydock.dev/drydock/internal/propertytest"
	"drydock.dev/drydock/internal/virtctl/target"
)

// A real shell parses the command after ssh's expansion of percent signs.
func TestProxyCommandSurvivesSSHAndTheShell(t *testing.T) {
	machine := target.Target{Kind: "vm", Name: "cirros", Namespace: "lab"}
	propertytest.Check(t, func(t *rapid.T) {
		word := rapid.StringMatching(`[ -~\t\n]{0,12}`)
		executable := "/bin/" + rapid.StringMatching(`[a-z '%$]{1,8}`).Draw(t, "executable")
		global := rapid.SliceOfN(word, 0, 3).Draw(t, "global")
		command := strings.ReplaceAll(proxyCommand(executable, global, machine, 22), "%%", "%")
		out, err := exec.Command("/bin/sh", "-c", `printf '%s\0' `+command).Output()
		if err != nil {
			t.Fatalf("the shell refuses %q: %v", command, err)
		}
		got := strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00")
		want := append(append([]string{executable, "port-forward", "--stdio=true"}, global...), "vm/cirros/lab", "22")
		if strings.Join(got, "\x00") != strings.Join(want, "\x00") {
			t.Fatalf("the shell reads %q as %q, want %q", command, got, want)
		}
	})
}
