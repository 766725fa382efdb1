// Package admission is the HTTP side of Drydock's admission webhooks: it decodes kube-apiserver's request, calls the
// path's rule, and encodes the response with all errors of an object at once.
//
// It must have no rule itself: defaults and validate do.
package admission

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	jsonpatch "github.com/evanphx/json-patch/v5"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
	sigsjson "sigs.k8s.io/json"

	"drydock.dev/drydock/internal/rules/cluster/clusterconfig"
	"drydock.dev/drydock/internal/rules/object/listbounds"
)

// Request is a request for the admission of a T. Name is empty as long as it is not known.
type Request[T any] struct {
	Operation       admissionv1.Operation
	Username        string
	User            authenticationv1.UserInfo
	Namespace, Name string
	// DryRun means that nothing may be changed.
	DryRun bool
	// Old is nil on creation, New on deletion.
	Old, New *T
}

// Component reports whether one of Drydock's components calls.
func (r Request[T]) Component() bool { return IsComponent(r.Username) }

// The ServiceAccounts are in clusterconfig.Namespace.
const (
	APIServiceAccount        = "kubevirt-apiserver"
	ControllerServiceAccount = "kubevirt-controller"
	HandlerServiceAccount    = clusterconfig.HandlerServiceAccount
)

// IsController reports whether username is virt-controller's service account.
func IsController(username string) bool {
	return username == "system:serviceaccount:"+clusterconfig.Namespace+":"+ControllerServiceAccount
}

// IsComponent reports whether username is one of Drydock's service accounts.
func IsComponent(username string) bool {
	account, ok := strings.CutPrefix(username, "system:serviceaccount:"+clusterconfig.Namespace+":")
	if !ok {
		return false
	}
	switch account {
	case APIServiceAccount, ControllerServiceAccount, HandlerServiceAccount:
		return true
	}
	return false
}

// Validating serves a rule with all errors of an object.
func Validating[T any](rule func(Request[T]) field.ErrorList, advice ...func(Request[T]) []string) (http.Handler, error) {
	return ValidatingAsking(func(_ context.Context, r Request[T]) (field.ErrorList, error) { return rule(r), nil }, advice...)
}

// ValidatingAsking serves a rule that reads the cluster. An admitted object gets the warnings of advice.
func ValidatingAsking[T any](rule func(context.Context, Request[T]) (field.ErrorList, error), advice ...func(Request[T]) []string) (http.Handler, error) {
	return Judging(func(ctx context.Context, r Request[T]) (Verdict, error) {
		errs, err := rule(ctx, r)
		return Verdict{Errors: errs}, err
	}, advice...)
}

// Verdict is a rule's result about an object. Warnings are for an admitted object.
type Verdict struct {
	Errors   field.ErrorList
	Warnings []string
}

// Judging is ValidatingAsking for a rule that finds warnings in the cluster, too.
func Judging[T any](rule func(context.Context, Request[T]) (Verdict, error), advice ...func(Request[T]) []string) (http.Handler, error) {
	return serve(func(ctx context.Context, raw admission.Request) admission.Response {
		request, err := decode[T](raw)
		if err != nil {
			return unreadable(err)
		}
		verdict, err := rule(ctx, request)
		if err != nil {
			return admission.Errored(http.StatusInternalServerError, err)
		}
		if len(verdict.Errors) > 0 {
			return refuse(verdict.Errors)
		}
		allowed := admission.Allowed("").WithWarnings(verdict.Warnings...)
		for _, advise := range advice {
			allowed = allowed.WithWarnings(advise(request)...)
		}
		return allowed
	})
}

// Deferring serves a rule that returns why a request must wait, "" if it is allowed. The client retries, as for a
// PodDisruptionBudget. If the rule fails, the request is allowed with a warning.
func Deferring[T any](rule func(context.Context, Request[T]) (wait string, err error)) (http.Handler, error) {
	return serve(func(ctx context.Context, raw admission.Request) admission.Response {
		request, err := decode[T](raw)
		if err != nil {
			return unreadable(err)
		}
		switch wait, err := rule(ctx, request); {
		case err != nil:
			return admission.Allowed("").WithWarnings(err.Error())
		case wait != "":
			return admission.Response{AdmissionResponse: admissionv1.AdmissionResponse{Result: &metav1.Status{
				Status: metav1.StatusFailure, Code: http.StatusTooManyRequests, Reason: metav1.StatusReasonTooManyRequests, Message: wait,
			}}}
		}
		return admission.Allowed("")
	})
}

// Mutating serves a rule that completes request.New in place. Advice is given as by MutatingAsking.
func Mutating[T any](rule func(Request[T]), advice ...func(Request[T]) []string) (http.Handler, error) {
	return MutatingAsking(func(_ context.Context, r Request[T]) error {
		rule(r)
		return nil
	}, advice...)
}

// MutatingAsking serves a rule that reads the cluster. advice gets the object as it was sent.
func MutatingAsking[T any](rule func(context.Context, Request[T]) error, advice ...func(Request[T]) []string) (http.Handler, error) {
	return serve(func(ctx context.Context, raw admission.Request) admission.Response {
		request, err := decode[T](raw)
		if err != nil {
			return unreadable(err)
		}
		var warnings []string
		for _, advise := range advice {
			warnings = append(warnings, advise(request)...)
		}
		patched, err := mutate(raw.Object.Raw, request, func(r Request[T]) error { return rule(ctx, r) })
		if err != nil {
			return admission.Errored(http.StatusInternalServerError, err)
		}
		return admission.PatchResponseFromRaw(raw.Object.Raw, patched).WithWarnings(warnings...)
	})
}

func serve(handle admission.HandlerFunc) (http.Handler, error) {
	handler, err := admission.StandaloneWebhook(&admission.Webhook{Handler: handle}, admission.StandaloneOptions{})
	if err != nil {
		return nil, fmt.Errorf("making an admission webhook: %w", err)
	}
	return handler, nil
}

// unreadable answers a request that can't be decoded. Errors about a field look like a rule's.
func unreadable(err error) admission.Response {
	if problem := (*field.Error)(nil); errors.As(err, &problem) {
		return refuse(field.ErrorList{problem})
	}
	return admission.Errored(http.StatusBadRequest, err)
}

func decode[T any](raw admission.Request) (Request[T], error) {
	request := Request[T]{
		Operation: raw.Operation, Username: raw.UserInfo.Username, User: raw.UserInfo, Namespace: raw.Namespace, Name: raw.Name,
		DryRun: raw.DryRun != nil && *raw.DryRun,
	}
	// Too many values are refused, since rules compare the entries of lists with each other.
	if tooLong, err := listbounds.Exceeded(raw.Object.Raw); tooLong != nil {
		return request, tooLong
	} else if err != nil {
		return request, err
	}
	var err error
	if request.Old, err = decodeObject[T](raw.OldObject.Raw); err != nil {
		return request, fmt.Errorf("decoding the old %s %s/%s: %w", raw.Kind.Kind, raw.Namespace, raw.Name, err)
	}
	if request.New, err = decodeObject[T](raw.Object.Raw); err != nil {
		return request, fmt.Errorf("decoding %s %s/%s: %w", raw.Kind.Kind, raw.Namespace, raw.Name, err)
	}
	return request, nil
}

func decodeObject[T any](raw []byte) (*T, error) {
	if len(raw) == 0 {
		return nil, nil
	}
	// Kubernetes and every component decode with case-sensitive names.
	object := new(T)
	if err := sigsjson.UnmarshalCaseSensitivePreserveInts(raw, object); err != nil {
		return nil, err
	}
	return object, nil
}

// mutate merges only rule's changes into the object as it was sent, not fields that Go's types add or normalize.
func mutate[T any](raw []byte, request Request[T], rule func(Request[T]) error) ([]byte, error) {
	before, err := json.Marshal(request.New)
	if err != nil {
		return nil, fmt.Errorf("encoding the object: %w", err)
	}
	if err := rule(request); err != nil {
		return nil, err
	}
	after, err := json.Marshal(request.New)
	if err != nil {
		return nil, fmt.Errorf("encoding the completed object: %w", err)
	}
	change, err := jsonpatch.CreateMergePatch(before, after)
	if err != nil {
		return nil, fmt.Errorf("comparing the object with its completion: %w", err)
	}
	patched, err := jsonpatch.MergePatch(raw, change)
	if err != nil {
		return nil, fmt.Errorf("completing the object: %w", err)
	}
	return patched, nil
}

// maxTold bounds the reported errors of one object. Each is a text with a path.
const maxTold = 100

func refuse(errs field.ErrorList) admission.Response {
	details := &metav1.StatusDetails{}
	sentences := make([]string, 0, min(len(errs), maxTold+1))
	for i, err := range errs {
		if i == maxTold {
			sentences = append(sentences, fmt.Sprintf("and %d more", len(errs)-maxTold))
			break
		}
		sentence := Sentence(err)
		told := sentence
		if err.Field != "" {
			told = err.Field + ": " + sentence
		}
		sentences = append(sentences, told)
		details.Causes = append(details.Causes, metav1.StatusCause{
			Type: metav1.CauseType(err.Type), Field: err.Field, Message: sentence,
		})
	}
	return admission.Response{AdmissionResponse: admissionv1.AdmissionResponse{
		Result: &metav1.Status{
			Status:  metav1.StatusFailure,
			Code:    http.StatusUnprocessableEntity,
			Reason:  metav1.StatusReasonInvalid,
			Message: strings.Join(sentences, "; "),
			Details: details,
		},
	}}
}

// Sentence returns the error without the field's path, and without the value if the field itself is forbidden.
func Sentence(err *field.Error) string {
	if err.Type == field.ErrorTypeForbidden {
		return err.Detail
	}
	return err.ErrorBody()
}
