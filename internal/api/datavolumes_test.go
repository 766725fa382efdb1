package api

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	jsonpatch "github.com/evanphx/json-patch/v5"

	"drydock.dev/drydock/internal/api/admission"
	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/rules/cluster/clusterconfig"
)

// cluster has one VM, and users with the right to clone.
type cluster struct {
	client.Client
	vm  string
	may []string
}

func (c cluster) Get(_ context.Context, key client.ObjectKey, object client.Object, _ ...client.GetOption) error {
	if c.vm == "" {
		return apierrors.NewNotFound(v1.Resource("virtualmachines"), key.Name)
	}
	return json.Unmarshal([]byte(c.vm), object)
}

func (c cluster) Create(_ context.Context, object client.Object, _ ...client.CreateOption) error {
	review := object.(*authorizationv1.SubjectAccessReview)
	for _, user := range c.may {
		review.Status.Allowed = review.Status.Allowed || review.Spec.User == user
	}
	return nil
}

// A DataVolume of a VM's template is made again and again with the rights of the user who wrote its source. Without his
// right to clone it must not be made, whoever deleted the last one. A VM with an existing DataVolume needs nobody's
// right.
func TestTheDataVolumeOfATemplateIsMadeWithTheRightOfWhoWroteIt(t *testing.T) {
	vmThatClones := func(uid, writers, source string) string {
		return fmt.Sprintf(`{"metadata":{"name":"vm","namespace":"mine","uid":%q,"annotations":{%q:%q}},
			"spec":{"dataVolumeTemplates":[{"metadata":{"name":"disk"},"spec":{"source":%s}}]}}`, uid, layout.AnnCloneWriters, writers, source)
	}
	const secret, others = `{"pvc":{"namespace":"theirs","name":"secret"}}`, `{"pvc":{"namespace":"others","name":"secret"}}`
	vm := func(uid, writers string) string { return vmThatClones(uid, writers, secret) }
	const byAnn = `{"pvc/theirs/secret":{"username":"ann"}}`
	const gone = "the user who wrote this source into VirtualMachine vm may not create datavolumes/source in namespace theirs any more"
	const taken = "has no template with its source any more"
	for name, test := range map[string]struct {
		cluster cluster
		want    string
	}{
		"he has the right":                {cluster{vm: vm("1", byAnn), may: []string{"ann"}}, ""},
		"he has lost it":                  {cluster{vm: vm("1", byAnn), may: []string{"bob"}}, gone},
		"the VM is of an earlier version": {cluster{vm: vm("1", "")}, ""},
		"the source was taken out":        {cluster{vm: vmThatClones("1", "", `{"blank":{}}`)}, taken},
		"another was put in its place":    {cluster{vm: vmThatClones("1", `{"pvc/others/secret":{"username":"ann"}}`, others), may: []string{"ann"}}, taken},
		"the VM is another one by now":    {cluster{vm: vm("2", byAnn), may: []string{"ann"}}, "is another one by now"},
		"the VM is gone":                  {cluster{}, "reading VirtualMachine mine/vm"},
	} {
		t.Run(name, func(t *testing.T) {
			served, err := webhooks(&clusterconfig.Current{}, test.cluster, nil)
			must(t, err)
			object := []byte(`{"metadata":{"name":"disk","namespace":"mine","ownerReferences":[
				{"apiVersion":"kubevirt.io/v1","kind":"VirtualMachine","name":"vm","uid":"1","controller":true}]},
				"spec":{"source":{"pvc":{"namespace":"theirs","name":"secret"}},"storage":{}}}`)
			request := &admissionv1.AdmissionRequest{
				UID: "1", Namespace: "mine", Name: "disk", Operation: admissionv1.Create, Object: runtime.RawExtension{Raw: object},
				UserInfo: authenticationv1.UserInfo{Username: "system:serviceaccount:" + clusterconfig.Namespace + ":" + admission.ControllerServiceAccount},
			}
			response := askFor(t, served[mutateDV], request)
			if response.Allowed {
				request.Object.Raw = patched(t, object, response.Patch)
				response = askFor(t, served[validateDV], request)
			}
			if response.Allowed != (test.want == "") || !response.Allowed && !strings.Contains(response.Result.Message, test.want) {
				t.Errorf("the answer is %+v, want %q", response.Result, test.want)
			}
		})
	}
}

func patched(t *testing.T, object, patch []byte) []byte {
	t.Helper()
	if len(patch) == 0 {
		return object
	}
	decoded, err := jsonpatch.DecodePatch(patch)
	must(t, err)
	out, err := decoded.Apply(object)
	must(t, err)
	return out
}

// The writer of a VM must be noted on it, and must not be able to name another.
func TestAVMSaysWhoWroteItsSources(t *testing.T) {
	served, err := webhooks(&clusterconfig.Current{}, authorizer{allowed: true}, nil)
	must(t, err)
	forged := strings.Replace(vmThatClones, `"name":"vm",`, `"name":"vm","annotations":{"`+layout.AnnCloneWriters+`":"{}"},`, 1)
	for _, manifest := range []string{vmThatClones, forged} {
		var vm v1.VirtualMachine
		must(t, json.Unmarshal(patched(t, []byte(manifest), ask(t, served[mutateVM], manifest).Patch), &vm))
		if got := vm.Annotations[layout.AnnCloneWriters]; got != `{"pvc/theirs/secret":{"username":"tenant"}}` {
			t.Errorf("the VM says %q", got)
		}
	}
}
