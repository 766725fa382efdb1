package api

import (
	"net/http"

	"golang.org/x/sync/semaphore"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"drydock.dev/drydock/internal/answer"
)

const (
	// reviewsAtATime is how many bytes of reviews are judged at one time. TestWhatAReviewCosts bounds what virt-api needs
	// for each of them.
	reviewsAtATime = 16 << 20
	// longestReview is how much of a review is read: an object of the API server's greatest size, before and after.
	longestReview = 7 << 20
	// leastReview is what a review counts for at least: a short text can say much.
	leastReview = 256 << 10
)

// sizeOf is what a review counts for. A length below 0 is unknown.
func sizeOf(length int64) int64 {
	if length < 0 {
		return longestReview
	}
	return min(max(length, leastReview), longestReview)
}

// inTurn has reviews wait that together would be too large for virt-api's memory.
func inTurn(reviews http.Handler) http.Handler {
	room := semaphore.NewWeighted(reviewsAtATime)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		size := sizeOf(r.ContentLength)
		if err := room.Acquire(r.Context(), size); err != nil {
			answer.Error(w, apierrors.NewTimeoutError("too many large objects are being judged at this time", 1))
			return
		}
		defer room.Release(size)
		reviews.ServeHTTP(w, r)
	})
}
