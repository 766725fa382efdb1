package vmistatus

import (
	"bytes"
	"maps"
	"os"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apiserver/pkg/authentication/user"

	"drydock.dev/drydock/internal/policytest"
)

// The check for drift regenerates the page; here it only has to exist.
func TestThePageIsMadeAnewWithoutAChange(t *testing.T) {
	page, err := os.ReadFile("../../../../docs/architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	again, err := InPage(page)
	if err != nil || !bytes.Equal(again, page) {
		t.Errorf("make generate changes the page (%v)", err)
	}
	for name, page := range map[string]string{
		"a page without a place for the table":       "x",
		"a page in which the table does not end":     "x\n" + tableBegins + "x\n",
		"a page in which the table has no beginning": "x\n" + tableEnds + "x\n",
	} {
		if _, err := InPage([]byte(page)); err == nil {
			t.Errorf("%s is written", name)
		}
	}
	policy, err := os.ReadFile("../../../../config/rbac/status-policy.yaml")
	if err != nil || !bytes.Equal(policy, Policy()) {
		t.Errorf("make generate changes the policy (%v)", err)
	}
}

// accounts are the writers, with the nodes of the VMI in withStatus.
var accounts = map[Writer]user.Info{
	API:           &user.DefaultInfo{Name: "system:serviceaccount:kubevirt:kubevirt-apiserver"},
	Controller:    &user.DefaultInfo{Name: "system:serviceaccount:kubevirt:kubevirt-controller"},
	Handler:       handlerOn("source"),
	TargetHandler: handlerOn("target"),
}

func handlerOn(node string) user.Info {
	return &user.DefaultInfo{Name: "system:serviceaccount:kubevirt:kubevirt-handler",
		Extra: map[string][]string{"authentication.kubernetes.io/node-name": {node}}}
}

// The API server must let each component change its fields at each stage, and no others.
func TestThePolicyHoldsEachWriterToItsFields(t *testing.T) {
	policy := policytest.Load(t, "../../../../config/rbac/status-policy.yaml", "virtualmachineinstance-status")
	phases := map[Stage]string{Waiting: "Pending", HandedOver: "Scheduled", Ended: "Failed"}
	for by, account := range accounts {
		for stage, phase := range phases {
			for i := range Fields {
				f := &Fields[i]
				before := map[string]any{"phase": phase, "evacuationNodeName": "source", "migrationState": map[string]any{"migrationUid": "m", "failed": true}}
				if by == TargetHandler {
					before["migrationState"] = map[string]any{"migrationUid": "m", "startTimestamp": "then"}
				}
				if f.Name == "nodeName" {
					before["migrationState"] = map[string]any{"migrationUid": "m", "completed": true}
				}
				refused := policy.Answer(t, policytest.Write{By: account, Resource: "virtualmachineinstances",
					Old: withStatus(before), New: withStatus(changedField(f, before))})
				if f.MayWrite(by, stage) != (refused == "") {
					t.Errorf("%s changes %s, %s: %q", by, f.Name, stage, refused)
				}
			}
		}
	}
}

// A component's right to write a migration depends on the migration's progress.
func TestThePolicyHoldsEachWriterToItsMomentOfAMigration(t *testing.T) {
	policy := policytest.Load(t, "../../../../config/rbac/status-policy.yaml", "virtualmachineinstance-status")
	type state = map[string]any
	waits, begun := state{"migrationUid": "m"}, state{"migrationUid": "m", "startTimestamp": "then"}
	with := func(s state, more state) state {
		out := maps.Clone(s)
		maps.Copy(out, more)
		return out
	}
	for name, c := range map[string]struct {
		by            Writer
		before, after state
		phase         string
		refused       string
	}{
		"virt-controller lets one fail that has not been begun": {Controller, waits, with(waits, state{"failed": true}), "Running", ""},
		"virt-controller lets one fail that has been begun":     {Controller, begun, with(begun, state{"failed": true}), "Running", "virt-controller may not"},
		"virt-controller lets it fail together with its VMI":    {Controller, begun, with(begun, state{"failed": true, "endTimestamp": "now"}), "Failed", ""},
		"virt-controller ends what the source says of an abort": {Controller, begun, with(begun, state{"abortStatus": "Succeeded"}), "Running", "virt-controller may not"},
		"the source lets it fail":                               {Handler, begun, with(begun, state{"failed": true}), "Running", ""},
		"the target completes it":                               {TargetHandler, begun, with(begun, state{"completed": true, "endTimestamp": "now"}), "Running", ""},
		"the target completes one that has not been begun":      {TargetHandler, waits, with(waits, state{"completed": true}), "Running", "virt-handler of the target may not"},
		"the target completes one that has failed":              {TargetHandler, with(begun, state{"failed": true}), with(begun, state{"failed": true, "completed": true}), "Running", "virt-handler of the target may not"},
		"virt-controller completes one that has failed":         {Controller, with(begun, state{"failed": true}), with(begun, state{"failed": true, "completed": true}), "Running", ""},
		"virt-controller completes one that goes on":            {Controller, begun, with(begun, state{"completed": true}), "Running", "virt-controller may not"},
		"the source lets it fail whose target pod is out":       {Handler, begun, with(begun, state{"failed": true, "completed": true}), "Running", ""},
		"the source lets one fail that has completed":           {Handler, with(begun, state{"completed": true}), with(begun, state{"failed": true, "completed": true}), "Running", "can't fail"},
		"the source completes it":                               {Handler, begun, with(begun, state{"completed": true}), "Running", "virt-handler may not"},
		"another begins when one has completed":                 {Controller, with(begun, state{"completed": true}), state{"migrationUid": "n"}, "Running", ""},
		"another begins when one has failed":                    {Controller, with(waits, state{"failed": true}), state{"migrationUid": "n"}, "Running", ""},
		"another begins when one is not over":                   {Controller, begun, state{"migrationUid": "n"}, "Running", "can't be replaced"},
		"another begins with what is known of the one before":   {Controller, with(begun, state{"completed": true}), with(begun, state{"completed": true, "migrationUid": "n"}), "Running", "virt-controller may not"},
		"another begins that has been begun":                    {Controller, with(waits, state{"failed": true}), with(begun, state{"migrationUid": "n"}), "Running", "virt-controller may not"},
		"the target has another begin":                          {TargetHandler, with(begun, state{"completed": true}), state{"migrationUid": "n"}, "Running", "virt-handler of the target may not"},
	} {
		after := state{"phase": c.phase, "migrationState": c.after}
		got := policy.Answer(t, policytest.Write{By: accounts[c.by], Resource: "virtualmachineinstances",
			Old: withStatus(state{"phase": "Running", "migrationState": c.before}), New: withStatus(after)})
		if (got == "") != (c.refused == "") || !strings.Contains(got, c.refused) {
			t.Errorf("%s: answered %q, want %q", name, got, c.refused)
		}
	}
}

// A failed migration may be completed only without a pod at the target, or with the VMI's end. No guest's node may
// change with it, whatever a virt-controller of another version makes of the two fields.
func TestThePolicyKeepsAGuestFromFollowingAFailedMigration(t *testing.T) {
	policy := policytest.Load(t, "../../../../config/rbac/status-policy.yaml", "virtualmachineinstance-status")
	type state = map[string]any
	failed := state{"migrationUid": "m", "startTimestamp": "then", "targetNode": "target", "failed": true}
	completed := func(s state) state { out := maps.Clone(s); out["completed"] = true; return out }
	arrived := completed(failed)
	delete(arrived, "failed")
	both, one := state{"p": "source", "q": "target"}, state{"p": "source"}
	for name, c := range map[string]struct {
		by            Writer
		before, after state
		refused       string
	}{
		"the target pod is there": {Controller, state{"activePods": both, "migrationState": failed}, state{"activePods": both, "migrationState": completed(failed)}, "virt-controller may not"},
		"it leaves":               {Controller, state{"activePods": both, "migrationState": failed}, state{"activePods": one, "migrationState": completed(failed)}, ""},
		"it is there, and the source completes it": {Handler, state{"activePods": both, "migrationState": failed}, state{"activePods": both, "migrationState": completed(failed)}, "virt-handler may not"},
		"the VMI ends": {Handler, state{"activePods": both, "migrationState": failed}, state{"phase": "Failed", "activePods": both, "migrationState": completed(failed)}, ""},
		"the guest's node changes with a failed one": {Controller, state{"nodeName": "source", "migrationState": completed(failed)}, state{"nodeName": "target", "migrationState": completed(failed)}, "node changes only"},
		"the guest's node changes":                   {Controller, state{"nodeName": "source", "migrationState": arrived}, state{"nodeName": "target", "migrationState": arrived}, ""},
	} {
		was, is := state{"phase": "Running"}, state{"phase": "Running"}
		maps.Copy(was, c.before)
		maps.Copy(is, c.after)
		got := policy.Answer(t, policytest.Write{By: accounts[c.by], Resource: "virtualmachineinstances", Old: withStatus(was), New: withStatus(is)})
		if (got == "") != (c.refused == "") || !strings.Contains(got, c.refused) {
			t.Errorf("%s: answered %q, want %q", name, got, c.refused)
		}
	}
}

// virt-api requests a VMI's evacuation; virt-controller ends it.
func TestThePolicyLetsNobodyButVirtAPIHaveAVMIEvacuated(t *testing.T) {
	policy := policytest.Load(t, "../../../../config/rbac/status-policy.yaml", "virtualmachineinstance-status")
	for by, may := range map[Writer]bool{API: true, Controller: false, Handler: false, TargetHandler: false} {
		refused := policy.Answer(t, policytest.Write{By: accounts[by], Resource: "virtualmachineinstances",
			Old: withStatus(map[string]any{"phase": "Running"}), New: withStatus(map[string]any{"phase": "Running", "evacuationNodeName": "source"})})
		if may != (refused == "") {
			t.Errorf("%s marks a VMI: %q", by, refused)
		}
	}
}

// A new VMI has no status, and other policies judge other accounts.
func TestWhatThePolicyLetsPass(t *testing.T) {
	policy := policytest.Load(t, "../../../../config/rbac/status-policy.yaml", "virtualmachineinstance-status")
	changed := withStatus(map[string]any{"phase": "Running", "migrationState": map[string]any{"migrationUid": "changed"}})
	for name, w := range map[string]policytest.Write{
		"the first write of virt-controller": {
			By: &user.DefaultInfo{Name: "system:serviceaccount:kubevirt:kubevirt-controller"}, Old: withStatus(nil), New: withStatus(map[string]any{"phase": "Pending"})},
		"a write of virt-controller that is not about the status": {
			By: &user.DefaultInfo{Name: "system:serviceaccount:kubevirt:kubevirt-controller"}, Old: withStatus(nil), New: withStatus(nil)},
		"a condition of virt-controller's that virt-handler repeats": {
			By:  &user.DefaultInfo{Name: "system:serviceaccount:kubevirt:kubevirt-handler"},
			Old: withStatus(map[string]any{"phase": "Scheduled", "conditions": []any{map[string]any{"type": "DataVolumesReady", "status": "True"}}}),
			New: withStatus(map[string]any{"phase": "Running", "conditions": []any{
				map[string]any{"type": "DataVolumesReady", "status": "True", "lastProbeTime": nil},
				map[string]any{"type": "Ready", "status": "True", "lastProbeTime": nil},
			}})},
		"the source's virt-handler when the guest has got to its node": {
			By:  handlerOn("source"),
			Old: withStatus(map[string]any{"phase": "Running"}), New: withStatus(map[string]any{"phase": "Running", "guestOSInfo": "changed"})},
		"another account": {By: &user.DefaultInfo{Name: "admin"}, Old: withStatus(nil), New: changed},
	} {
		w.Resource = "virtualmachineinstances"
		if refused := policy.Answer(t, w); refused != "" {
			t.Errorf("%s: %s", name, refused)
		}
	}
}

func withStatus(status map[string]any) *unstructured.Unstructured {
	content := map[string]any{
		"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "metadata": map[string]any{"namespace": "shop", "name": "web",
			"labels": map[string]any{"kubevirt.io/nodeName": "source", "kubevirt.io/migrationTargetNodeName": "target"}},
	}
	if status != nil {
		content["status"] = status
	}
	return &unstructured.Unstructured{Object: content}
}

// changedField is a status with another value of the field.
func changedField(f *Field, before map[string]any) map[string]any {
	status := maps.Clone(before)
	sub, ofMigration := strings.CutPrefix(f.Name, "migrationState.")
	switch {
	case f.Condition:
		status["conditions"] = []any{map[string]any{"type": f.Name, "status": "False"}}
	case f.Name == "conditions":
		status["conditions"] = []any{map[string]any{"type": "Other", "status": "False"}}
	case ofMigration:
		was := before["migrationState"].(map[string]any)
		m := maps.Clone(was)
		switch m[sub] = "changed"; sub {
		case "migrationUid":
			m = map[string]any{sub: "changed"}
		case "completed", "failed":
			m[sub] = was[sub] != true
		}
		status["migrationState"] = m
	case f.Name == "evacuationNodeName":
		// Its writer may at least clear it.
		delete(status, f.Name)
	default:
		status[f.Name] = "changed"
	}
	return status
}

// The status of a VMI that has ended must be reset when the VMI is to have no guest for now, and then only as a whole.
func TestThePolicyLetsAVMIBeginAnewForMaintenance(t *testing.T) {
	policy := policytest.Load(t, "../../../../config/rbac/status-policy.yaml", "virtualmachineinstance-status")
	type state = map[string]any
	ended := state{"phase": "Succeeded", "nodeName": "node", "activePods": state{"uid": "node"}, "machine": state{"type": "q35"},
		"migrationState": state{"migrationUid": "m"}}
	for name, c := range map[string]struct {
		by       Writer
		strategy string
		after    state
		may      bool
	}{
		"it begins anew":            {Controller, "Maintenance", state{"phase": "Pending"}, true},
		"it is locked at once":      {Controller, "Maintenance", state{"phase": "Maintenance"}, true},
		"it is to run":              {Controller, "Paused", state{"phase": "Pending"}, false},
		"it keeps the pod":          {Controller, "Maintenance", state{"phase": "Pending", "activePods": state{"uid": "node"}}, false},
		"it is handed over":         {Controller, "Maintenance", state{"phase": "Scheduled"}, false},
		"virt-handler has it go on": {Handler, "Maintenance", state{"phase": "Pending"}, false},
		"virt-api has it go on":     {API, "Maintenance", state{"phase": "Pending"}, false},
	} {
		was, is := withStatus(ended), withStatus(c.after)
		was.Object["spec"], is.Object["spec"] = state{"startStrategy": c.strategy}, state{"startStrategy": c.strategy}
		refused := policy.Answer(t, policytest.Write{By: accounts[c.by], Resource: "virtualmachineinstances", Old: was, New: is})
		if c.may != (refused == "") {
			t.Errorf("%s: answered %q", name, refused)
		}
	}
}
