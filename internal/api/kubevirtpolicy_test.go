package api

import (
	"strings"
	"testing"

	"k8s.io/apiserver/pkg/authentication/user"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/internal/policytest"
	"drydock.dev/drydock/internal/rules/cluster/clusterconfig"
)

// Every right in a namespace must not suffice. The API server's own code judges config/rbac/kubevirt-policy.yaml.
func TestWhoConfiguresTheClusterFromANamespace(t *testing.T) {
	policy := policytest.Load(t, "../../config/rbac/kubevirt-policy.yaml", "drydock-kubevirt-object")
	all := func(string, string) bool { return true }
	only := func(rights ...string) func(string, string) bool {
		return func(verb, resource string) bool {
			for _, right := range rights {
				if right == verb+" "+resource {
					return true
				}
			}
			return false
		}
	}
	const refused = "it takes the right to do this in all namespaces"
	object := func(namespace string) *v1.KubeVirt {
		kv := &v1.KubeVirt{}
		kv.SetGroupVersionKind(v1.KubeVirtGroupVersionKind)
		kv.Namespace, kv.Name = namespace, "mine"
		return kv
	}
	for name, test := range map[string]struct {
		namespace  string
		verb       string
		resource   string
		everywhere func(verb, resource string) bool
		refused    string
	}{
		"made by a namespace's owner":           {"theirs", "create", "kubevirts", nil, refused},
		"changed by a namespace's owner":        {"theirs", "update", "kubevirts", nil, refused},
		"deleted by a namespace's owner":        {"theirs", "delete", "kubevirts", nil, refused},
		"its status, by a namespace's owner":    {"theirs", "update", "kubevirts/status", nil, refused},
		"made by who may everywhere":            {"theirs", "create", "kubevirts", only("create kubevirts"), ""},
		"changed by who may everywhere":         {"theirs", "update", "kubevirts", only("update kubevirts"), ""},
		"changed by who may patch everywhere":   {"theirs", "update", "kubevirts", only("patch kubevirts"), ""},
		"deleted by who may everywhere":         {"theirs", "delete", "kubevirts", only("delete kubevirts"), ""},
		"changed by who may make it everywhere": {"theirs", "update", "kubevirts", only("create kubevirts"), refused},
		"its status, by virt-controller":        {"theirs", "update", "kubevirts/status", only("patch kubevirts/status"), ""},
		"the spec, by virt-controller":          {"theirs", "update", "kubevirts", only("patch kubevirts/status"), refused},
		"in the components' namespace":          {clusterconfig.Namespace, "create", "kubevirts", nil, ""},
	} {
		write := policytest.Write{By: &user.DefaultInfo{Name: "ann"}, Resource: test.resource, May: all, MayEverywhere: test.everywhere}
		var old, changed client.Object = object(test.namespace), object(test.namespace)
		switch test.verb {
		case "create":
			write.New = changed
		case "delete":
			write.Old = old
		default:
			write.Old, write.New = old, changed
		}
		got := policy.Answer(t, write)
		if (got == "") != (test.refused == "") || !strings.Contains(got, test.refused) {
			t.Errorf("%s: %q, want %q", name, got, test.refused)
		}
	}
}
