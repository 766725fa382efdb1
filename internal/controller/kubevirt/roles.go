package kubevirt

import (
	"context"
	"fmt"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/internal/controller/versioned"
	"drydock.dev/drydock/internal/rules/cluster/components"
)

// UsersRole is the kind of ClusterRoles for users in the cache. Only their metadata is cached.
func UsersRole() *metav1.PartialObjectMetadata {
	role := &metav1.PartialObjectMetadata{}
	role.SetGroupVersionKind(rbacv1.SchemeGroupVersion.WithKind("ClusterRole"))
	return role
}

// patchUserRoles makes the ClusterRoles for users extend those of Kubernetes, or not. It returns the API server's
// refusals. A policy (config/rbac/role-policy.yaml) allows virt-controller no other change of them.
func (r *Reconciler) patchUserRoles(ctx context.Context, kv *v1.KubeVirt) (refused []string, err error) {
	roles := &metav1.PartialObjectMetadataList{}
	roles.SetGroupVersionKind(rbacv1.SchemeGroupVersion.WithKind("ClusterRoleList"))
	if err := r.Client.List(ctx, roles, client.MatchingLabels(components.RoleLabels())); err != nil {
		return nil, fmt.Errorf("listing the roles for users: %w", err)
	}
	for i := range roles.Items {
		role := &roles.Items[i]
		if !components.AggregatedRole(role.Name) {
			continue
		}
		patch, err := components.Aggregation(role, kv)
		if err != nil {
			return nil, err
		}
		if patch == nil {
			continue
		}
		changed := UsersRole()
		changed.Name = role.Name
		err = r.Client.Patch(ctx, changed, client.RawPatch(types.MergePatchType, patch))
		switch {
		case err == nil || versioned.Overtaken(err):
			// The role has changed, which enqueues it.
		case apierrors.IsForbidden(err) || apierrors.IsInvalid(err):
			refused = append(refused, fmt.Sprintf("ClusterRole %s: %v", role.Name, err))
		default:
			return nil, fmt.Errorf("labeling the ClusterRole %s: %w", role.Name, err)
		}
	}
	return refused, nil
}
