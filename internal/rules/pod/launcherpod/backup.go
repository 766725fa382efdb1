package launcherpod

import (
	"encoding/json"
	"fmt"

	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/layout"
)

// hookBackups annotates for backup tools that know Velero's hooks: they freeze the guest while they snapshot its disks.
// The VMI's own hooks, or its wish for none, take precedence.
func hookBackups(vmi *v1.VirtualMachineInstance, annotations map[string]string) {
	if annotations[layout.SkipBackupHooksAnnotation] == "true" {
		return
	}
	for hook, flag := range map[string]string{"pre": "--freeze", "post": "--unfreeze"} {
		command := hook + ".hook.backup.velero.io/command"
		if _, own := annotations[command]; own {
			continue
		}
		annotations[hook+".hook.backup.velero.io/container"] = layout.ComputeContainer
		annotations[command] = list(layout.FreezerBinary, flag, "--name", vmi.Name, "--namespace", vmi.Namespace)
	}
}

func list(words ...string) string {
	text, err := json.Marshal(words)
	if err != nil {
		panic(fmt.Sprintf("a list of strings does not encode: %v", err))
	}
	return string(text)
}
