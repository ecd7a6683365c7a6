/* `batches` of ../batches.star with padded = True: N ranks, K batches. In each, a rank chooses how many tokens it has, which
 * makes no difference because buffers are padded, and enters one collective.
 *
 * The choice is forgotten when the collective is entered. Left out: the pool, whose blocks are as long on every path.
 */
byte launched[K];

active [N] proctype rank() {
  byte i;
  bool tokens;
  do
  :: i < K ->
     if :: tokens = false :: tokens = true fi;
     d_step { tokens = false; launched[i]++ };
     launched[i] == N;
     i++
  :: i == K -> break
  od
}
