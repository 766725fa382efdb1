package handler

import (
	"errors"
	"os"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/cel/environment"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	sigyaml "sigs.k8s.io/yaml"

	"drydock.dev/drydock/internal/handler/node"
	"drydock.dev/drydock/internal/nodeprobe"
)

// These tests judge writes by config/rbac/handler-policy.yaml, with the API
// server's own code: what virt-handler does must pass, and what somebody with its
// token might do must not.

const policies = "../../config/rbac/handler-policy.yaml"

// handlerOn is virt-handler as the API server knows it from the token of its pod on
// a node.
func handlerOn(nodes ...string) *user.DefaultInfo {
	info := &user.DefaultInfo{Name: "system:serviceaccount:kubevirt:kubevirt-handler"}
	if len(nodes) > 0 {
		info.Extra = map[string][]string{"authentication.kubernetes.io/node-name": nodes}
	}
	return info
}

// write is a change of an object by somebody.
type write struct {
	by     user.Info
	change func(client.Object)
	// refused is a part of what is answered; empty when the write passes.
	refused string
}

func TestVirtHandlerReportsTheMachinesOfItsNodeAndNoMore(t *testing.T) {
	instance := &v1.VirtualMachineInstance{TypeMeta: metav1.TypeMeta{APIVersion: "kubevirt.io/v1", Kind: "VirtualMachineInstance"}}
	instance.Namespace, instance.Name = "shop", "web"
	instance.Labels = map[string]string{v1.NodeNameLabel: "node1", "app": "web"}
	instance.Finalizers = []string{v1.VirtualMachineInstanceFinalizer}
	instance.Spec.Domain.Devices.Disks = []v1.Disk{{Name: "root"}}
	instance.Spec.Volumes = []v1.Volume{{Name: "root"}}
	instance.Status.Phase = v1.Scheduled

	runs := func(o client.Object) { o.(*v1.VirtualMachineInstance).Status.Phase = v1.Running }
	change := func(f func(*v1.VirtualMachineInstance)) func(client.Object) {
		return func(o client.Object) { f(o.(*v1.VirtualMachineInstance)) }
	}
	judge(t, "virt-handler-virtualmachineinstances", instance, map[string]write{
		"a status on its own node":        {by: handlerOn("node1"), change: runs},
		"a status on another node":        {by: handlerOn("node2"), change: runs, refused: "of its own node"},
		"a token that is bound to no pod": {by: handlerOn(), change: runs, refused: "of its own node"},
		"a machine drawn to its own node": {by: handlerOn("node2"), refused: "of its own node",
			change: change(func(vmi *v1.VirtualMachineInstance) { vmi.Labels[v1.NodeNameLabel] = "node2" })},
		"a machine sent away": {by: handlerOn("node1"), refused: "metadata",
			change: change(func(vmi *v1.VirtualMachineInstance) { vmi.Labels[v1.NodeNameLabel] = "node2" })},
		"another disk": {by: handlerOn("node1"), refused: "spec",
			change: change(func(vmi *v1.VirtualMachineInstance) {
				vmi.Spec.Volumes[0].DataVolume = &v1.DataVolumeSource{Name: "somebody-elses"}
			})},
		"an annotation": {by: handlerOn("node1"), refused: "metadata",
			change: change(func(vmi *v1.VirtualMachineInstance) { vmi.Annotations = map[string]string{"a": "b"} })},
		"the finalizer": {by: handlerOn("node1"), refused: "metadata",
			change: change(func(vmi *v1.VirtualMachineInstance) { vmi.Finalizers = nil })},
		"virt-controller's writes": {
			by:     &user.DefaultInfo{Name: "system:serviceaccount:kubevirt:kubevirt-controller"},
			change: change(func(vmi *v1.VirtualMachineInstance) { vmi.Labels[v1.NodeNameLabel] = "node2" })},
	})
}

func TestVirtHandlerLabelsItsNodeAndNoMore(t *testing.T) {
	object := &corev1.Node{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}}
	object.Name = "node1"
	object.Labels = map[string]string{"zone": "a", v1.CPUModelLabel + "Conroe": "true"}

	probe := nodeprobe.Result{CPUModels: []string{"Haswell", "qemu64"}, HostModel: "Haswell"}
	labeled := func(o client.Object) {
		labels := o.GetLabels()
		delete(labels, v1.CPUModelLabel+"Conroe")
		for name, value := range node.Labels(probe) {
			labels[name] = value
		}
	}
	judge(t, "virt-handler-nodes", object, map[string]write{
		"what its node can do":           {by: handlerOn("node1"), change: labeled},
		"what another node can do":       {by: handlerOn("node2"), change: labeled, refused: "its own node"},
		"a label that places pods":       {by: handlerOn("node1"), change: func(o client.Object) { o.GetLabels()["zone"] = "b" }, refused: "labels that say"},
		"another label of ours":          {by: handlerOn("node1"), change: func(o client.Object) { o.GetLabels()["drydock.dev/other"] = "b" }, refused: "labels that say"},
		"a label taken away":             {by: handlerOn("node1"), change: func(o client.Object) { delete(o.GetLabels(), "zone") }, refused: "labels that say"},
		"a label that was not there":     {by: handlerOn("node1"), change: func(o client.Object) { o.GetLabels()["trusted"] = "true" }, refused: "labels that say"},
		"taints":                         {by: handlerOn("node1"), change: func(o client.Object) { o.(*corev1.Node).Spec.Unschedulable = true }, refused: "nothing of a node but labels"},
		"an annotation":                  {by: handlerOn("node1"), change: func(o client.Object) { o.SetAnnotations(map[string]string{"a": "b"}) }, refused: "nothing of a node but labels"},
		"the writes of an administrator": {by: &user.DefaultInfo{Name: "admin"}, change: func(o client.Object) { o.GetLabels()["zone"] = "b" }},
	})
}

// judge has the policy of that name judge writes to an object.
func judge(t *testing.T, name string, old client.Object, writes map[string]write) {
	t.Helper()
	policy := compiled(t, name)
	for what, w := range writes {
		changed := old.DeepCopyObject().(client.Object)
		w.change(changed)
		if got := answer(t, policy, w.by, old, changed); (got == "") != (w.refused == "") || !strings.Contains(got, w.refused) {
			t.Errorf("%s: answered %q, want %q", what, got, w.refused)
		}
	}
}

// answer is why a write is refused, empty when it is not.
func answer(t *testing.T, policy validating.Validator, by user.Info, old, changed client.Object) string {
	t.Helper()
	before, after := untyped(t, old), untyped(t, changed)
	kind := before.GroupVersionKind()
	attributes := &admission.VersionedAttributes{
		Attributes: admission.NewAttributesRecord(after, before, kind, old.GetNamespace(), old.GetName(),
			schema.GroupVersionResource{}, "", admission.Update, &metav1.PatchOptions{}, false, by),
		VersionedObject: after, VersionedOldObject: before, VersionedKind: kind,
	}
	result := policy.Validate(t.Context(), schema.GroupVersionResource{}, attributes, nil, nil, celconfig.RuntimeCELCostBudget, nil)
	var said []string
	for _, d := range result.Decisions {
		if d.Action == validating.ActionDeny {
			said = append(said, d.Message)
		}
	}
	return strings.Join(said, "; ")
}

func untyped(t *testing.T, object client.Object) *unstructured.Unstructured {
	t.Helper()
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		t.Fatal(err)
	}
	return &unstructured.Unstructured{Object: content}
}

// compiled is a policy of the manifest, as the API server makes it.
func compiled(t *testing.T, name string) validating.Validator {
	t.Helper()
	spec := read(t, name).Spec
	compiler, err := cel.NewCompositedCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))
	if err != nil {
		t.Fatal(err)
	}
	var variables []cel.NamedExpressionAccessor
	for i := range spec.Variables {
		variables = append(variables, &validating.Variable{Name: spec.Variables[i].Name, Expression: spec.Variables[i].Expression})
	}
	options := cel.OptionalVariableDeclarations{}
	compiler.CompileAndStoreVariables(variables, options, environment.NewExpressions)
	var conditions, validations []cel.ExpressionAccessor
	for i := range spec.MatchConditions {
		conditions = append(conditions, (*matchconditions.MatchCondition)(&spec.MatchConditions[i]))
	}
	for _, v := range spec.Validations {
		validations = append(validations, &validating.ValidationCondition{Expression: v.Expression, Message: v.Message})
	}
	condition := compiler.CompileCondition(conditions, options, environment.NewExpressions)
	validation := compiler.CompileCondition(validations, options, environment.NewExpressions)
	if errs := append(condition.CompilationErrors(), validation.CompilationErrors()...); len(errs) > 0 {
		t.Fatalf("the policy %s can't be compiled: %v", name, errors.Join(errs...))
	}
	none := compiler.CompileCondition(nil, options, environment.NewExpressions)
	matcher := matchconditions.NewMatcher(condition, spec.FailurePolicy, "policy", "validate", name)
	return validating.NewValidator(validation, matcher, none, none, spec.FailurePolicy, nil)
}

// read finds the policy in the manifest, and that it is bound to refuse.
func read(t *testing.T, name string) *admissionregistrationv1.ValidatingAdmissionPolicy {
	t.Helper()
	data, err := os.ReadFile(policies)
	if err != nil {
		t.Fatal(err)
	}
	var found *admissionregistrationv1.ValidatingAdmissionPolicy
	bound := false
	for _, document := range strings.Split(string(data), "\n---\n") {
		var policy admissionregistrationv1.ValidatingAdmissionPolicy
		var binding admissionregistrationv1.ValidatingAdmissionPolicyBinding
		if strings.Contains(document, "\nkind: ValidatingAdmissionPolicyBinding\n") {
			err = sigyaml.UnmarshalStrict([]byte(document), &binding)
			bound = bound || binding.Spec.PolicyName == name && len(binding.Spec.ValidationActions) == 1 &&
				binding.Spec.ValidationActions[0] == admissionregistrationv1.Deny
		} else if err = sigyaml.UnmarshalStrict([]byte(document), &policy); policy.Name == name {
			found = &policy
		}
		if err != nil {
			t.Fatalf("reading %s: %v", policies, err)
		}
	}
	if found == nil || !bound {
		t.Fatalf("%s has no policy %s that refuses: found %v, bound %v", policies, name, found != nil, bound)
	}
	return found
}
