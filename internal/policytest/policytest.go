// Package policytest evaluates writes by the ValidatingAdmissionPolicies of a manifest, with the API server's own
// code. No program must link it.
package policytest

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/cel/environment"
	"sigs.k8s.io/controller-runtime/pkg/client"
	sigyaml "sigs.k8s.io/yaml"
)

// Policy is a compiled policy with its bindings.
type Policy struct {
	rules     []admissionregistrationv1.NamedRuleWithOperations
	selectors []labels.Selector
	validator validating.Validator
}

// Write is an attempted write.
type Write struct {
	By user.Info
	// Resource is the one in the request's path: pods, or pods/status.
	Resource string
	// Old is nil for a creation, New for a deletion.
	Old, New client.Object
	// May reports the rights of By in the object's namespace, for policies that check them. nil means none.
	May func(verb, resource string) bool
	// MayEverywhere reports the rights of By in all namespaces. nil means none.
	MayEverywhere func(verb, resource string) bool
}

// Authorize implements authorizer.Authorizer.
func (w Write) Authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	resource := strings.TrimSuffix(a.GetResource()+"/"+a.GetSubresource(), "/")
	may := w.May
	switch a.GetNamespace() {
	case "":
		may = w.MayEverywhere
	case w.object().GetNamespace():
	default:
		may = nil
	}
	if may != nil && a.GetUser() == w.By && may(a.GetVerb(), resource) {
		return authorizer.DecisionAllow, "", nil
	}
	return authorizer.DecisionNoOpinion, "", nil
}

func (w Write) object() client.Object {
	if w.New == nil {
		return w.Old
	}
	return w.New
}

func (w Write) operation() admission.Operation {
	switch {
	case w.Old == nil:
		return admission.Create
	case w.New == nil:
		return admission.Delete
	default:
		return admission.Update
	}
}

// Answer returns the messages of all validations that refuse the write, "" if none does.
func (p *Policy) Answer(t testing.TB, w Write) string {
	t.Helper()
	return strings.Join(p.denials(t, w), "; ")
}

// Told returns the API server's message to the writer, which is that of the first validation that refuses the write.
func (p *Policy) Told(t testing.TB, w Write) string {
	t.Helper()
	if said := p.denials(t, w); len(said) > 0 {
		return said[0]
	}
	return ""
}

func (p *Policy) denials(t testing.TB, w Write) []string {
	t.Helper()
	if !p.concerns(w) {
		return nil
	}
	kind := untyped(t, w.object()).GroupVersionKind()
	resource, subresource, _ := strings.Cut(w.Resource, "/")
	// An interface that holds a nil pointer would not be nil.
	var before, after runtime.Object
	if w.Old != nil {
		before = untyped(t, w.Old)
	}
	if w.New != nil {
		after = untyped(t, w.New)
	}
	attributes := &admission.VersionedAttributes{
		Attributes: admission.NewAttributesRecord(after, before, kind, w.object().GetNamespace(), w.object().GetName(),
			schema.GroupVersionResource{Group: kind.Group, Version: kind.Version, Resource: resource}, subresource,
			w.operation(), &metav1.PatchOptions{}, false, w.By),
		VersionedObject: after, VersionedOldObject: before, VersionedKind: kind,
	}
	result := p.validator.Validate(t.Context(), attributes.GetResource(), attributes, nil, nil, celconfig.RuntimeCELCostBudget, w)
	var said []string
	for _, d := range result.Decisions {
		if d.Action == validating.ActionDeny {
			said = append(said, d.Message)
		}
	}
	return said
}

func (p *Policy) concerns(w Write) bool {
	ruled := slices.ContainsFunc(p.rules, func(r admissionregistrationv1.NamedRuleWithOperations) bool {
		return slices.Contains(r.Resources, w.Resource) &&
			slices.Contains(r.Operations, admissionregistrationv1.OperationType(w.operation()))
	})
	return ruled && slices.ContainsFunc(p.selectors, func(s labels.Selector) bool {
		return w.New != nil && s.Matches(labels.Set(w.New.GetLabels())) || w.Old != nil && s.Matches(labels.Set(w.Old.GetLabels()))
	})
}

func untyped(t testing.TB, object client.Object) *unstructured.Unstructured {
	t.Helper()
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		t.Fatal(err)
	}
	return &unstructured.Unstructured{Object: content}
}

// Load reads a policy, which must be bound with the action Deny.
func Load(t testing.TB, manifest, name string) *Policy {
	t.Helper()
	spec, bindings := read(t, manifest, name)
	p := &Policy{rules: spec.MatchConstraints.ResourceRules, validator: compiled(t, name, spec)}
	for _, b := range bindings {
		selector := labels.Everything()
		if b.MatchResources != nil && b.MatchResources.ObjectSelector != nil {
			var err error
			if selector, err = metav1.LabelSelectorAsSelector(b.MatchResources.ObjectSelector); err != nil {
				t.Fatalf("a binding of the policy %s: %v", name, err)
			}
		}
		p.selectors = append(p.selectors, selector)
	}
	return p
}

func compiled(t testing.TB, name string, spec admissionregistrationv1.ValidatingAdmissionPolicySpec) validating.Validator {
	t.Helper()
	compiler, err := cel.NewCompositedCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))
	if err != nil {
		t.Fatal(err)
	}
	var variables []cel.NamedExpressionAccessor
	for i := range spec.Variables {
		variables = append(variables, &validating.Variable{Name: spec.Variables[i].Name, Expression: spec.Variables[i].Expression})
	}
	options := cel.OptionalVariableDeclarations{HasAuthorizer: true}
	compiler.CompileAndStoreVariables(variables, options, environment.NewExpressions)
	var conditions, validations, messages []cel.ExpressionAccessor
	for i := range spec.MatchConditions {
		conditions = append(conditions, (*matchconditions.MatchCondition)(&spec.MatchConditions[i]))
	}
	for _, v := range spec.Validations {
		validations = append(validations, &validating.ValidationCondition{Expression: v.Expression, Message: v.Message})
		var message cel.ExpressionAccessor
		if v.MessageExpression != "" {
			message = &validating.MessageExpressionCondition{MessageExpression: v.MessageExpression}
		}
		messages = append(messages, message)
	}
	condition := compiler.CompileCondition(conditions, options, environment.NewExpressions)
	validation := compiler.CompileCondition(validations, options, environment.NewExpressions)
	// A message must not ask for rights.
	message := compiler.CompileCondition(messages, cel.OptionalVariableDeclarations{}, environment.NewExpressions)
	if errs := slices.Concat(condition.CompilationErrors(), validation.CompilationErrors(), message.CompilationErrors()); len(errs) > 0 {
		t.Fatalf("the policy %s can't be compiled: %v", name, errors.Join(errs...))
	}
	none := compiler.CompileCondition(nil, options, environment.NewExpressions)
	matcher := matchconditions.NewMatcher(condition, spec.FailurePolicy, "policy", "validate", name)
	return validating.NewValidator(validation, matcher, none, message, spec.FailurePolicy, nil)
}

func read(t testing.TB, manifest, name string) (
	spec admissionregistrationv1.ValidatingAdmissionPolicySpec, bindings []admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec,
) {
	t.Helper()
	data, err := os.ReadFile(manifest)
	if err != nil {
		t.Fatal(err)
	}
	found := false
	for _, document := range strings.Split(string(data), "\n---\n") {
		var policy admissionregistrationv1.ValidatingAdmissionPolicy
		var binding admissionregistrationv1.ValidatingAdmissionPolicyBinding
		if strings.Contains(document, "\nkind: ValidatingAdmissionPolicyBinding\n") {
			err = sigyaml.UnmarshalStrict([]byte(document), &binding)
			if binding.Spec.PolicyName == name && slices.Contains(binding.Spec.ValidationActions, admissionregistrationv1.Deny) {
				bindings = append(bindings, binding.Spec)
			}
		} else if err = sigyaml.UnmarshalStrict([]byte(document), &policy); policy.Name == name {
			found, spec = true, policy.Spec
		}
		if err != nil {
			t.Fatalf("reading %s: %v", manifest, err)
		}
	}
	if !found || len(bindings) == 0 || spec.MatchConstraints == nil {
		t.Fatalf("%s has no policy %s that refuses", manifest, name)
	}
	return spec, bindings
}
