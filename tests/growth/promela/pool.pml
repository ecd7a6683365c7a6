/* ../../benches/pool_history.star: N ranks with a pool each, whose free list is ordered by address. At most one allocation fails
 * of the eleven on each rank. If it is one of the first four, all ranks leave.
 *
 * Which allocation fails is chosen once, at the start, instead of being asked at each. Three segments are free when the order of
 * their addresses is asked for, and two comparisons at most decide it. What follows is one step, as nobody else sees it:
 * three times two blocks are taken from the list and put back. At the end all that no rank needs any more is forgotten.
 */
#define FIRST 4
#define ALL 11
byte came, launched;
bool agreed = true;

proctype rank(byte fails) {
  byte x, y, nth, low, middle;
  d_step { agreed = agreed && !(fails >= 1 && fails <= FIRST); came++ };
  came == N;
  if
  :: !agreed
  :: else ->
     if :: low = 1 :: low = 2 :: low = 3 fi;
     if :: middle = low % 3 + 1 :: middle = (low + 1) % 3 + 1 fi;
     d_step {
       nth = FIRST + 1;
       do
       :: nth < ALL ->
          x = (fails == nth -> 0 : low);
          y = (fails == nth + 1 -> 0 : (x == 0 -> low : middle));
          nth = nth + 2
       :: else -> break
       od;
       x = 0; y = 0; nth = 0; low = 0; middle = 0; fails = 0
     };
     d_step { launched++ };
     launched == N
  fi
}

init {
  byte victim, nth, j;
  do :: victim < N -> victim++ :: break od;
  if :: victim < N -> nth = 1; do :: nth < ALL -> nth++ :: break od :: else fi;
  atomic {
    do :: j < N -> run rank((j == victim -> nth : 0)); j++ :: j == N -> break od;
    victim = 0; nth = 0; j = 0
  }
}
