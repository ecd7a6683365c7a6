/* agreement.pml as one process, which decides for each rank in turn. Whoever writes the model has to know that no other order matters:
 * what a search of all orders would have to find out.
 */
bool agreed = true;

active proctype all() {
  byte rank;
  do
  :: rank < N -> if :: d_step { rank++ } :: d_step { agreed = false; rank++ } fi
  :: rank == N -> break
  od
}
