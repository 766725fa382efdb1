package subresource

import (
	"context"
	"fmt"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/request"
)

// demand refuses a caller without the right to an action that virt-api performs with its own rights. why ends the
// sentence.
func (s *Server) demand(ctx context.Context, a authorizationv1.ResourceAttributes, why string) error {
	caller, known := request.UserFrom(ctx)
	if !known {
		return fmt.Errorf("asking whether the caller may %s %s: the request does not say who that is", a.Verb, resourceOf(a))
	}
	extra := make(map[string]authorizationv1.ExtraValue, len(caller.GetExtra()))
	for key, values := range caller.GetExtra() {
		extra[key] = authorizationv1.ExtraValue(values)
	}
	asked := a
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: caller.GetName(), Groups: caller.GetGroups(), UID: caller.GetUID(), Extra: extra,
		ResourceAttributes: &asked,
	}}
	if err := s.cluster.Create(ctx, review); err != nil {
		return fmt.Errorf("asking whether %s may %s %s: %w", caller.GetName(), a.Verb, resourceOf(a), err)
	}
	if review.Status.Allowed && !review.Status.Denied {
		return nil
	}
	return apierrors.NewForbidden(schema.GroupResource{Group: a.Group, Resource: resourceOf(a)}, a.Name,
		fmt.Errorf("user %q may not %s %s in namespace %q, %s", caller.GetName(), a.Verb, resourceOf(a), a.Namespace, why))
}

func resourceOf(a authorizationv1.ResourceAttributes) string {
	if a.Subresource == "" {
		return a.Resource
	}
	return a.Resource + "/" + a.Subresource
}
