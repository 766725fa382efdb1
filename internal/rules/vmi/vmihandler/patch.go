package vmihandler

import (
	"bytes"
	"encoding/json"
	"fmt"

	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/rules/vmi/vmistatus"
)

var owned = vmistatus.Writable(vmistatus.Handler)

// RFC 6902 defines it.
type operation struct {
	Op    string          `json:"op"`
	Path  string          `json:"path"`
	Value json.RawMessage `json:"value,omitempty"`
}

// Patch returns the JSON patch of the VMI's status, nil for no difference. It applies only to this version: after another
// write the status must be computed again.
func Patch(vmi *v1.VirtualMachineInstance, want v1.VirtualMachineInstanceStatus) ([]byte, error) {
	before, err := fields(vmi.Status)
	if err != nil {
		return nil, err
	}
	after, err := fields(want)
	if err != nil {
		return nil, err
	}
	var changes []operation
	for _, name := range owned {
		path := "/status/" + name
		switch {
		case bytes.Equal(before[name], after[name]):
		case after[name] == nil:
			changes = append(changes, operation{Op: "remove", Path: path})
		default:
			changes = append(changes, operation{Op: "add", Path: path, Value: after[name]})
		}
	}
	if len(changes) == 0 {
		return nil, nil
	}
	var tests []operation
	for _, same := range []struct{ path, value string }{
		{"/metadata/resourceVersion", vmi.ResourceVersion},
		{"/metadata/uid", string(vmi.UID)},
		{"/status/phase", string(vmi.Status.Phase)},
	} {
		value, err := json.Marshal(same.value)
		if err != nil {
			return nil, fmt.Errorf("encoding a patch: %w", err)
		}
		tests = append(tests, operation{Op: "test", Path: same.path, Value: value})
	}
	patch, err := json.Marshal(append(tests, changes...))
	if err != nil {
		return nil, fmt.Errorf("encoding a patch: %w", err)
	}
	return patch, nil
}

func fields(status v1.VirtualMachineInstanceStatus) (map[string]json.RawMessage, error) {
	data, err := json.Marshal(status)
	if err != nil {
		return nil, fmt.Errorf("encoding a status: %w", err)
	}
	var out map[string]json.RawMessage
	if err := json.Unmarshal(data, &out); err != nil {
		return nil, fmt.Errorf("encoding a status: %w", err)
	}
	return out, nil
}
