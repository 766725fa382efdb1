package vmistatus

import (
	"fmt"
	"testing"

	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/qemu/runstate"
)

// The condition about the guest's credentials must stay while a new virt-handler has not tried yet.
func TestWhetherTheGuestHasItsCredentials(t *testing.T) {
	kind := v1.VirtualMachineInstanceAccessCredentialsSynchronized
	guest := func(credentials Fact[string]) Facts {
		return Facts{Now: now, Guest: Known(Guest{RunState: runstate.Of("running"), Credentials: credentials})}
	}
	for name, c := range map[string]struct {
		vmi  *v1.VirtualMachineInstance
		f    Facts
		want string
	}{
		"nobody has tried":         {instance(v1.Running), guest(Fact[string]{}), ""},
		"they are set":             {instance(v1.Running), guest(Known("")), "True AccessCredentialsSyncSuccess: "},
		"the agent refuses":        {instance(v1.Running, says(kind, "True", "")), guest(Known("no user ann")), "False AccessCredentialsSyncFailed: no user ann"},
		"virt-handler begins anew": {instance(v1.Running, says(kind, "False", "before")), guest(Fact[string]{}), "False before: "},
	} {
		got := ""
		for _, said := range Project(c.vmi, Handler, c.f).Conditions {
			if said.Type == kind {
				got = fmt.Sprintf("%s %s: %s", said.Status, said.Reason, said.Message)
			}
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
