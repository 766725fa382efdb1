package vmistatus

import (
	"bytes"
	"os"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apiserver/pkg/authentication/user"

	"drydock.dev/drydock/internal/policytest"
)

// What is generated is made anew by the check for drift; here it only has to be there.
func TestThePageIsMadeAnewWithoutAChange(t *testing.T) {
	page, err := os.ReadFile("../../../docs/architecture.md")
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
	policy, err := os.ReadFile("../../../config/rbac/status-policy.yaml")
	if err != nil || !bytes.Equal(policy, Policy()) {
		t.Errorf("make generate changes the policy (%v)", err)
	}
}

// The API server lets each component change its fields at each stage, and no other.
func TestThePolicyHoldsEachWriterToItsFields(t *testing.T) {
	policy := policytest.Load(t, "../../../config/rbac/status-policy.yaml", "virtualmachineinstance-status")
	phases := map[Stage]string{Waiting: "Pending", HandedOver: "Scheduled", Ended: "Failed"}
	accounts := map[Writer]string{Controller: "kubevirt-controller", Handler: "kubevirt-handler"}
	for by, account := range accounts {
		for stage, phase := range phases {
			for i := range Fields {
				f := &Fields[i]
				refused := policy.Answer(t, policytest.Write{
					By: &user.DefaultInfo{Name: "system:serviceaccount:kubevirt:" + account}, Resource: "virtualmachineinstances",
					Old: withStatus(map[string]any{"phase": phase}), New: withStatus(changedField(f, phase)),
				})
				if f.MayWrite(by, stage) != (refused == "") {
					t.Errorf("%s changes %s, %s: %q", by, f.Name, stage, refused)
				}
			}
		}
	}
}

// A VMI that nobody has looked at has no status, and other accounts are judged elsewhere.
func TestWhatThePolicyLetsPass(t *testing.T) {
	policy := policytest.Load(t, "../../../config/rbac/status-policy.yaml", "virtualmachineinstance-status")
	changed := withStatus(map[string]any{"phase": "Running", "migrationState": "changed"})
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
		"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "metadata": map[string]any{"namespace": "shop", "name": "web"},
	}
	if status != nil {
		content["status"] = status
	}
	return &unstructured.Unstructured{Object: content}
}

// changedField is a status in a phase with another value of the field.
func changedField(f *Field, phase string) map[string]any {
	status := map[string]any{"phase": phase}
	switch {
	case f.Condition:
		status["conditions"] = []any{map[string]any{"type": f.Name, "status": "False"}}
	case f.Name == "conditions":
		status["conditions"] = []any{map[string]any{"type": "Other", "status": "False"}}
	default:
		status[f.Name] = "changed"
	}
	return status
}
