// Package cloneright asks the cluster whether a user may clone a disk from another namespace: whether the user may create
// datavolumes/source (cdi.kubevirt.io) there.
//
// It also owns the note on a VM about the writers of the sources in its dataVolumeTemplates (writers.go). It must not
// refuse anything: admission does. See decision 124.
package cloneright

import (
	"context"
	"fmt"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/internal/rules/storage/datavolume"
)

// Checker asks for the right to clone. Its Client must not use a cache.
type Checker struct{ Client client.Client }

// Allowed reports whether user may create a DataVolume with the spec in the namespace. A source in that namespace, or
// in none, needs no right.
func (c Checker) Allowed(ctx context.Context, user authenticationv1.UserInfo, spec *cdiv1.DataVolumeSpec, namespace string) (bool, error) {
	source, _, _ := datavolume.SourceOf(spec, namespace)
	if source == "" || source == namespace {
		return true, nil
	}
	extra := make(map[string]authorizationv1.ExtraValue, len(user.Extra))
	for key, values := range user.Extra {
		extra[key] = authorizationv1.ExtraValue(values)
	}
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: user.Username, Groups: user.Groups, UID: user.UID, Extra: extra,
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Namespace: source, Verb: "create", Group: cdiv1.SchemeGroupVersion.Group, Version: cdiv1.SchemeGroupVersion.Version,
			Resource: "datavolumes", Subresource: cdiv1.DataVolumeCloneSourceSubresource,
		},
	}}
	if err := c.Client.Create(ctx, review); err != nil {
		return false, fmt.Errorf("asking whether %s may clone from namespace %s: %w", user.Username, source, err)
	}
	return review.Status.Allowed, nil
}
